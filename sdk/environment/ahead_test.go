package environment

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/recipe-rl/recipe/sdk"
	"github.com/recipe-rl/recipe/sdk/trajectory"
)

// silent is a host of which only the log is used.
type silent struct{ sdk.Host }

func (silent) Log(string, string) {}

// Where the API knows that answers will go on, that counts from the first group on; it is asked once a step.
func TestMoreSamplesAheadOnceAnswersSpanUpdates(t *testing.T) {
	t.Parallel()
	for answer, want := range map[string]int{
		`{"version":0}`:                                      1,
		`{"version":0,"in_flight":"drain"}`:                  1,
		`{"version":0,"in_flight":"keep"}`:                   2,
		`{"version":0,"in_flight":"keep","max_staleness":1}`: 1,
	} {
		t.Run(answer, func(t *testing.T) {
			t.Parallel()
			var asked atomic.Int64
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
				if q.URL.Path == "/policy_version" {
					asked.Add(1)
					_, _ = io.WriteString(w, answer)
					return
				}
				_, _ = io.WriteString(w, `{"current_step":0,"queue_size":0}`)
			}))
			defer server.Close()
			api, err := trajectory.New(server.URL)
			if err != nil {
				t.Fatal(err)
			}
			r := &rollouts{place: openPlace(filepath.Join(t.TempDir(), "tasks.json"), "", nil),
				rates: openRates(filepath.Join(t.TempDir(), SolveRatesFile), nil), api: api, host: silent{},
				batchSize: 8}
			r.settings.GroupSize = 4
			look := func() {
				if err := r.look(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			if look(); asked.Load() != 0 || r.ahead() != 1 {
				t.Errorf("before any group is done: asked %d times, %d batches ahead", asked.Load(), r.ahead())
			}
			r.pace.done(time.Second)
			look()
			if look(); asked.Load() != 1 || r.ahead() != want {
				t.Errorf("asked %d times, %d batches ahead, want %d", asked.Load(), r.ahead(), want)
			}
		})
	}
}

// Where answers continue with new weights, a second batch may be sampled ahead, unless it would be too old.
func TestMoreSamplesAheadWhereAnswersSpanUpdates(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		set   int64
		spans bool
		limit string
		want  int
	}{
		"answers end before": {0, false, "", 1},
		"answers go on":      {0, true, "", 2},
		"two versions old":   {0, true, `,"max_staleness":2`, 2},
		"one version old":    {0, true, `,"max_staleness":1`, 1},
		"set to one":         {1, true, "", 1},
		"set to three":       {3, false, "", 3},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
				if q.URL.Path != "/policy_version" {
					http.NotFound(w, q)
					return
				}
				_, _ = fmt.Fprintf(w, `{"version":3%s}`, c.limit)
			}))
			defer server.Close()
			api, err := trajectory.New(server.URL)
			if err != nil {
				t.Fatal(err)
			}
			r := &rollouts{place: openPlace(filepath.Join(t.TempDir(), "tasks.json"), "", nil),
				rates: openRates(filepath.Join(t.TempDir(), SolveRatesFile), nil), api: api, host: silent{},
				batchSize: 8, queued: 2}
			r.settings.GroupSize, r.settings.MaxBatchesOffpolicy, r.settings.Concurrency = 4, c.set, 8
			if err := r.settle(t.Context(), outcome{spans: c.spans}); err != nil {
				t.Fatal(err)
			}
			if got, room := r.ahead(), r.room(); got != c.want || room != (c.want > 1) {
				t.Errorf("%d batches ahead, room behind a full one: %v; want %d", got, room, c.want)
			}
		})
	}
}
