package sync_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/recipe-rl/recipe/internal/weightserver"
	"github.com/recipe-rl/recipe/plugins/sync"
	"github.com/recipe-rl/recipe/sdk"
	"github.com/recipe-rl/recipe/sdk/kind"
	"github.com/recipe-rl/recipe/sdk/outputs"
	"github.com/recipe-rl/recipe/sdk/plugintest"
)

// A trainer that has reported its end, and whose process has ended since, is no failure: every run ends so.
func TestATrainerThatIsOverAndGoneIsNoFault(t *testing.T) {
	t.Parallel()
	var asked atomic.Int64
	gone, enough := make(chan struct{}), make(chan struct{})
	control := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		select {
		case <-gone: // nobody listens any more
			if strings.HasSuffix(r.URL.Path, "/pending") && asked.Add(1) == 3 {
				close(enough)
			}
			panic(http.ErrAbortHandler)
		default:
		}
		if strings.HasSuffix(r.URL.Path, "/pending") {
			w.WriteHeader(http.StatusGone)
			_, _ = w.Write([]byte(`{"error": "the trainer is over"}`))
			close(gone)
			return
		}
		_ = json.NewEncoder(w).Encode(weightserver.State{Phase: "over", Sync: syncAddress})
	}))
	t.Cleanup(control.Close)
	b := plugintest.Harness(t, sync.Definition())
	c := config(startTrainer(t, plugintest.FakeTrainerConfig{Steps: 1}), startInference(t, plugintest.FakeConfig{}))
	c.Trainer = plugintest.Ref("trainer.fake.test", kind.Trainer,
		outputs.Trainer{ControlURL: control.URL, ControlToken: "x"})
	b.Start(c, address(syncAddress))
	b.Ready()
	select {
	case <-enough:
	case <-time.After(plugintest.Deadline):
		t.Errorf("it has asked the trainer %d times since, want 3", asked.Load())
	}
	for _, e := range b.Events() {
		if p := e.GetPhase(); p.GetPhase() == string(sdk.Degraded) {
			t.Errorf("degraded: %s", p.GetMessage())
		}
		if l := e.GetLog(); l.GetLevel() == "warn" {
			t.Errorf("it warns: %s", l.GetMessage())
		}
	}
}

// At the end of a run the trainer's process may be gone a moment before this block is stopped, so that one question
// without an answer says nothing.
func TestATrainerThatDoesNotAnswerForAWhile(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		cut    int64 // questions without an answer, after the first that is put to a ready trainer
		phases []string
	}{
		{"one question", 1, []string{"ready"}},
		{"three questions", 3, []string{"ready", "degraded", "ready"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			var asked atomic.Int64
			control := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				pending := strings.HasSuffix(r.URL.Path, "/pending")
				if n := asked.Load(); (pending || n > 0) && n < c.cut {
					asked.Add(1)
					panic(http.ErrAbortHandler)
				}
				if pending {
					asked.Add(1)
					time.Sleep(10 * time.Millisecond) // nothing is published: a shorter wait than the real one
					w.WriteHeader(http.StatusNoContent)
					return
				}
				_ = json.NewEncoder(w).Encode(weightserver.State{Phase: "training", Sync: syncAddress})
			}))
			control.Config.SetKeepAlivesEnabled(false) // the client tries again when a connection that it kept is cut
			control.Start()
			t.Cleanup(control.Close)
			b := plugintest.Harness(t, sync.Definition())
			config := config(startTrainer(t, plugintest.FakeTrainerConfig{Steps: 1}),
				startInference(t, plugintest.FakeConfig{}))
			config.Trainer = plugintest.Ref("trainer.fake.test", kind.Trainer,
				outputs.Trainer{ControlURL: control.URL, ControlToken: "x"})
			b.Start(config, address(syncAddress))
			b.Ready()
			for deadline := time.Now().Add(plugintest.Deadline); asked.Load() < c.cut+3; {
				if time.Now().After(deadline) {
					t.Fatalf("it has asked %d times, want %d", asked.Load(), c.cut+3)
				}
				time.Sleep(time.Millisecond)
			}
			var phases []string
			for _, e := range b.Events() {
				if p := e.GetPhase().GetPhase(); p == string(sdk.Ready) || p == string(sdk.Degraded) {
					phases = append(phases, p)
				}
			}
			if !slices.Equal(phases, c.phases) {
				t.Errorf("phases %v, want %v", phases, c.phases)
			}
		})
	}
}
