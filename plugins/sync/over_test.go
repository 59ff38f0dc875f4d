package sync_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/recipe-rl/recipe/plugins/sync"
	"github.com/recipe-rl/recipe/sdk"
	"github.com/recipe-rl/recipe/sdk/kind"
	"github.com/recipe-rl/recipe/sdk/outputs"
	"github.com/recipe-rl/recipe/sdk/plugintest"
	"github.com/recipe-rl/recipe/sdk/trainer/weightserver"
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
