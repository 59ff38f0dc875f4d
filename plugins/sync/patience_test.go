package sync_test

import (
	"encoding/json"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/recipe-rl/recipe/plugins/sync"
	"github.com/recipe-rl/recipe/sdk"
	"github.com/recipe-rl/recipe/sdk/plugintest"
)

// During a long repair the sync block keeps contact with the trainer, which would give up waiting otherwise.
func TestTheTrainerHearsOfALongRepair(t *testing.T) {
	t.Parallel()
	server := startInference(t, plugintest.FakeConfig{})
	train := startTrainer(t, plugintest.FakeTrainerConfig{Steps: 1, Delay: time.Hour})
	var repairing, heard atomic.Int64
	hanging := between(t, func() string { return server.Output("control_url") },
		func(_ http.ResponseWriter, r *http.Request) bool {
			if !strings.HasSuffix(r.URL.Path, "/weights") {
				return false
			}
			repairing.Add(1)
			_, _ = io.Copy(io.Discard, r.Body) // otherwise the end of the connection is not noticed
			<-r.Context().Done()
			return true
		})
	watched := between(t, func() string { return train.Output("control_url") },
		func(_ http.ResponseWriter, r *http.Request) bool {
			if strings.HasSuffix(r.URL.Path, "/state") && repairing.Load() > 0 {
				heard.Add(1)
			}
			return false
		})
	b := plugintest.Harness(t, sync.Definition())
	// An earlier attempt has published version 3, which inference does not serve.
	weights := filepath.Join(b.Dir, "weights-3")
	data, err := json.Marshal(map[string]any{"weights": sdk.Weights{Version: 3, Path: weights,
		Format: "fake", Transport: "reload"}})
	if err == nil {
		err = os.WriteFile(filepath.Join(b.Dir, "last.json"), data, 0o600)
	}
	if err == nil {
		err = os.WriteFile(weights, []byte("3"), 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	c := config(train, server)
	c.Trainer, c.Inference[0] = offering(c.Trainer, watched, "reload"), offering(c.Inference[0], hanging, "reload")
	b.Start(c)
	for deadline := time.Now().Add(plugintest.Deadline); heard.Load() == 0; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("the trainer got no contact within %s; %d repairs were begun", plugintest.Deadline, repairing.Load())
		}
		if repairing.Load() > 1 {
			t.Fatal("the repair ended, and the trainer had got no contact")
		}
	}
}
