package alert

import (
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/recipe-rl/recipe/engine/event"
	"github.com/recipe-rl/recipe/engine/event/eventtest"
	"github.com/recipe-rl/recipe/schema/decode"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A run whose engine was killed is adopted while the reward is still too low.
//
//docs:alerts.md Alerts
func TestTheNextEngineRepeatsNothing(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		recorded time.Duration // how long ago the engine before recorded the alert; 0: it was killed before it could
		told     int32
	}{
		"told a minute ago":     {time.Minute, 0},
		"told an hour ago":      {time.Hour, 1},
		"killed before it told": {0, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var told atomic.Int32
			receiver := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { told.Add(1) }))
			defer receiver.Close()
			dir := t.TempDir()
			log, err := event.Open(dir)
			if err != nil {
				t.Fatal(err)
			}
			var types []event.Type
			var mu sync.Mutex
			put := func(e event.Event) {
				if e.Time.IsZero() {
					e.Time = time.Now()
				}
				if _, err := log.Append(e); err != nil {
					t.Error(err)
				}
			}
			low := rewards(0.1, 0.1)
			put(event.Event{Type: event.RunStarted})
			put(low[0])
			if c.recorded > 0 {
				put(event.Event{Type: event.Alert, Name: "low", Time: time.Now().Add(-c.recorded)})
			}
			w, err := Start(t.Context(), Options{Events: dir, Run: "r", Secrets: func(...string) {},
				Free: func() (uint64, error) { return 1 << 40, nil },
				Alerts: []decode.Alert{{Name: "low", Metric: "reward", Op: "<", Value: 0.5, For: 1, Webhook: receiver.URL,
					Every: 10 * time.Minute, Timeout: 10 * time.Second}},
				Record: func(e event.Event) {
					mu.Lock()
					defer mu.Unlock()
					types = append(types, e.Type)
				}})
			if err != nil {
				t.Fatal(err)
			}
			put(event.Event{Type: event.RunStarted})
			put(low[1])
			w.Stop()
			if err := log.Close(); err != nil {
				t.Fatal(err)
			}
			if got := told.Load(); got != c.told {
				t.Errorf("told %d times, want %d", got, c.told)
			}
			want := []event.Type{event.Alert}
			if c.recorded > 0 {
				want = []event.Type{event.AlertOver, event.Alert}
			}
			if !slices.Equal(types, want) {
				t.Errorf("recorded %v, want %v", types, want)
			}
		})
	}
}

// A long log is not decoded when the next engine begins to watch: that takes seconds.
func TestTheNextEngineReadsWhatItsAlertsConcern(t *testing.T) {
	t.Parallel()
	log := &eventtest.Writer{TB: t, Dir: t.TempDir()}
	for _, e := range []event.Event{{Type: event.Metrics, Address: trainer, Metrics: map[string]float64{`a "<b>"`: 0.1}},
		{Type: event.Span, Address: trainer}, {Type: event.Span, Address: trainer}} {
		log.Put(e)
		log.Save()
	}
	segments, err := event.Segments(log.Dir)
	if err != nil {
		t.Fatal(err)
	}
	eventtest.Spoil(t, segments[1])
	w, err := Start(t.Context(), Options{Events: log.Dir, Run: "r", Secrets: func(...string) {},
		Free:   func() (uint64, error) { return 1 << 40, nil },
		Alerts: []decode.Alert{{Name: "low", Metric: `a "<b>"`, Op: "<", Value: 0.5, For: 1}},
		Record: func(e event.Event) {
			if e.Type == event.Notice {
				t.Error(e.Message)
			}
		}})
	if err != nil {
		t.Fatal(err)
	}
	w.Stop()
	if !w.rules[0].firing || w.last != 3 {
		t.Errorf("the alert holds: %v, and the log was read to event %d, want 3", w.rules[0].firing, w.last)
	}
}
