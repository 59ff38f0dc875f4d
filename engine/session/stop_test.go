package session

import (
	"context"
	"errors"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/recipe-rl/recipe/engine/event"
	"github.com/recipe-rl/recipe/engine/event/eventtest"
	"github.com/recipe-rl/recipe/engine/plan"
	"github.com/recipe-rl/recipe/engine/run"
	"github.com/recipe-rl/recipe/engine/state"
	"github.com/recipe-rl/recipe/internal/web"
	"github.com/recipe-rl/recipe/schema/addr"
	"github.com/recipe-rl/recipe/sdk"
)

// stoppable is a run directory whose engine accepts a stop and answers with a status; stopped is called for the stop.
func stoppable(t *testing.T, status Status, stopped func(state.Dir, *state.Lock)) (state.Dir, *Client) {
	t.Helper()
	d := runDir(t, "r")
	lock, err := state.TryLock(d, "recipe apply")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = lock.Unlock() })
	path, err := listenPath(d)
	if err != nil {
		t.Fatal(err)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/stop", func(w http.ResponseWriter, _ *http.Request) {
		stopped(d, lock)
		answer(w, struct{}{}, nil)
	})
	mux.HandleFunc("GET /v1/status", func(w http.ResponseWriter, _ *http.Request) { answer(w, status, nil) })
	srv := web.NewServer(mux)
	l := listen(t, path)
	go func() { _ = web.Serve(srv, l) }()
	t.Cleanup(func() { _ = srv.Close() })
	c, err := Dial(t.Context(), d)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return d, c
}

// A stop whose end cannot be recorded reports that instead of waiting for room without limit.
//
//docs:survival.md the disk is full (no room, or the user's quota)
func TestAStopThatCannotBeRecordedSaysSo(t *testing.T) {
	t.Parallel()
	a := addr.Block{Kind: "trainer", Plugin: "x", Name: "t"}
	waiting := []run.Waiting{{Path: "/runs/r", Free: 12, Reason: "no space left on device"}}
	d, c := stoppable(t, Status{Waiting: waiting, Live: map[addr.Block]plan.Observed{a: {Phase: "stopped"}}},
		func(state.Dir, *state.Lock) {})
	err := Stop(t.Context(), d, c, "enough", false, nil)
	if err == nil || !strings.Contains(err.Error(), "everything has stopped") ||
		!strings.Contains(err.Error(), "/runs/r is full (12 bytes free)") {
		t.Errorf("it says %v", err)
	}
}

// While a block still ends, a full disk does not end the wait.
func TestAStopOnAFullDiskWaitsForItsBlocks(t *testing.T) {
	if testing.Short() {
		t.Skip("slow")
	}
	t.Parallel()
	a := addr.Block{Kind: "trainer", Plugin: "x", Name: "t"}
	d, c := stoppable(t, Status{Waiting: []run.Waiting{{Path: "/runs/r"}},
		Live: map[addr.Block]plan.Observed{a: {Alive: true, Phase: "draining"}}}, func(state.Dir, *state.Lock) {})
	ctx, cancel := context.WithTimeout(t.Context(), fullPatience+2*time.Second)
	defer cancel()
	if err := Stop(ctx, d, c, "enough", false, nil); err != context.DeadlineExceeded { //nolint:errorlint // as it is
		t.Errorf("it ended with %v", err)
	}
}

// A run that is destroyed while it is being stopped is not called new.
func TestAStopOfARunThatIsDestroyedSaysSo(t *testing.T) {
	t.Parallel()
	d, c := stoppable(t, Status{}, func(d state.Dir, l *state.Lock) {
		if err := os.RemoveAll(string(d)); err != nil {
			t.Error(err)
		}
		_ = l.Unlock()
	})
	if err := Stop(t.Context(), d, c, "enough", false, nil); err == nil || !strings.Contains(err.Error(), "destroyed") {
		t.Errorf("it says %v", err)
	}
}

// What the log had before the stop is not read again: that takes seconds when it is long.
func TestAStopReadsTheLogFromItsEnd(t *testing.T) {
	t.Parallel()
	w := &eventtest.Writer{TB: t}
	d, c := stoppable(t, Status{}, func(_ state.Dir, l *state.Lock) {
		w.Put(event.Event{Type: event.RunEnded, Time: time.Now()})
		w.Save()
		_ = l.Unlock()
	})
	w.Dir = d.Events()
	w.Put(event.Event{Type: event.RunStarted})
	w.Save()
	segments, err := event.Segments(w.Dir)
	if err != nil || len(segments) != 1 {
		t.Fatal(segments, err)
	}
	w.Put(event.Event{Type: event.Notice})
	w.Save()
	eventtest.Spoil(t, segments[0])
	var seen []event.Type
	err = Stop(t.Context(), d, c, "enough", false, func(e event.Event) { seen = append(seen, e.Type) })
	if !slices.Equal(seen, []event.Type{event.RunEnded}) {
		t.Errorf("during the stop there were %v (%v)", seen, err)
	}
}

// A block that failed before the stop, as one that an earlier kill hit after what it needs, is no error of this stop.
func TestAStopReportsItsOwnErrorsOnly(t *testing.T) {
	t.Parallel()
	a := addr.Block{Kind: "trainer", Plugin: "x", Name: "t"}
	tests := map[string]struct{ ofRun, ofBlock string }{
		"a block that had failed":   {ofBlock: "connection refused"},
		"a block that did not stop": {ofRun: "some blocks did not stop cleanly: trainer.x.t: killed", ofBlock: "killed"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d, c := stoppable(t, Status{}, func(d state.Dir, l *state.Lock) {
				store, err := state.OpenStore(d, nil)
				if err != nil {
					t.Error(err)
					return
				}
				store.Note(func(r *state.Run) { r.Status, r.Error = state.Stopped, tt.ofRun })
				store.NoteBlock(a, func(b *state.Block) {
					b.Phase, b.Error, b.Ended = "stopped", tt.ofBlock, time.Now().UTC()
				})
				if err := store.Close(); err != nil {
					t.Error(err)
				}
				_ = l.Unlock()
			})
			got := ""
			if err := Stop(t.Context(), d, c, "enough", false, nil); err != nil {
				got = err.Error()
				if e := (*sdk.Error)(nil); errors.As(err, &e) {
					got = e.Detail
				}
			}
			if got != tt.ofRun {
				t.Errorf("the stop ends with %q, expected %q", got, tt.ofRun)
			}
		})
	}
}

// The engine ends between the connection and the order: the outcome is in the record. A lost connection to an engine
// that still holds the run stays an error.
func TestAStopThatMeetsAnEngineThatEnds(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		status state.Status
		ofRun  string
		holds  bool
		want   string // in the error; empty: none
	}{
		"killed":               {status: state.Running, want: ErrNoEngine.Error()},
		"stopped":              {status: state.Stopped},
		"stopped, with errors": {status: state.Stopped, ofRun: "trainer.x.t: killed", want: "with errors"},
		"holds the run":        {status: state.Stopped, holds: true, want: "EOF"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d, c := stoppable(t, Status{}, func(d state.Dir, l *state.Lock) {
				store, err := state.OpenStore(d, nil)
				if err != nil {
					t.Error(err)
					return
				}
				store.Note(func(r *state.Run) { r.Status, r.Error = tt.status, tt.ofRun })
				if err := store.Close(); err != nil {
					t.Error(err)
				}
				if !tt.holds {
					_ = l.Unlock()
				}
				panic(http.ErrAbortHandler) // the connection ends without an answer
			})
			err := Stop(t.Context(), d, c, "enough", false, nil)
			if tt.want == "" && err != nil || tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
				t.Errorf("the stop ends with %v, expected %q", err, tt.want)
			}
			if errors.Is(err, ErrNoEngine) != (tt.status == state.Running) {
				t.Errorf("%v: ErrNoEngine means a run that is still to be stopped", err)
			}
		})
	}
}
