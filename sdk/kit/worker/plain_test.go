package worker_test

import (
	"encoding/json"
	"io/fs"
	"math"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/fstest"
	"time"

	"github.com/recipe-rl/recipe/internal/weightclient"
	"github.com/recipe-rl/recipe/internal/weightserver"
	"github.com/recipe-rl/recipe/sdk"
	"github.com/recipe-rl/recipe/sdk/kind"
	"github.com/recipe-rl/recipe/sdk/kit/worker"
	"github.com/recipe-rl/recipe/sdk/kit/worker/workertest"
	"github.com/recipe-rl/recipe/sdk/outputs"
	"github.com/recipe-rl/recipe/sdk/pluginpb"
	"github.com/recipe-rl/recipe/sdk/plugintest"
	"github.com/recipe-rl/recipe/sdk/spec"
	"github.com/recipe-rl/recipe/sdk/trainer"
	"github.com/recipe-rl/recipe/sdk/transport"
)

// plainConfig is the block of a trainer of sixty lines of PyTorch: sdk/python/tests/plain_trainer.py.
type plainConfig struct {
	Model        string    `recipe:"model" required:"true" worker:"model.path" doc:"Model"`
	Steps        int64     `recipe:"steps" default:"2" worker:"steps" doc:"Steps"`
	Trajectories *spec.Ref `recipe:"trajectories" reference:"trajectories" doc:"Batches"`
}

// plainPlugin is the whole Go side of such a trainer.
func plainPlugin(source fs.FS) *sdk.Definition {
	program := func(r sdk.Request[plainConfig]) (worker.Program, error) {
		settings := worker.Settings(r.Config)
		settings["data"] = map[string]any{"batch_size": 8, "batch_retry_delay": 0.05, "batch_max_wait": 0.1}
		settings["save_every"], settings["config"] = 1, map[string]any{"learning_rate": 0.01}
		return worker.Program{
			Module: "plain_trainer", Source: []fs.FS{source}, Model: r.Config.Model, Settings: settings,
			Trajectories: r.Config.Trajectories, Transports: []transport.Name{"reload"},
			Environment: map[string]string{"OMP_NUM_THREADS": "1"},
		}, nil
	}
	return trainer.New("plain", "REINFORCE in plain PyTorch", func() trainer.Plugin[plainConfig] {
		t := worker.New(program)
		return &t
	}, sdk.WithOutputs(worker.Outputs{}))
}

// torch is an interpreter with PyTorch.
func torch(t *testing.T) string {
	t.Helper()
	path, err := filepath.Abs("../../../.cache/venv-test/bin/python")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(path); err != nil {
		t.Skip("no .cache/venv-test; scripts/test-python.sh --prepare makes it")
	}
	return path
}

// batches is a trajectory API that always has a batch, and counts those that are acknowledged.
func batches(t *testing.T) (ref spec.Ref, acknowledged *atomic.Int64) {
	t.Helper()
	group := map[string]any{"env_id": 0, "policy_version": 0, "scores": []float64{0, 1, 0, 1}}
	var tokens, masks, logprobs []any
	for i := range 4 {
		tokens = append(tokens, []int{1, 5, 9, 3 + i, 20 + i, 40 + i})
		masks = append(masks, []int{-100, -100, -100, 3 + i, 20 + i, 40 + i})
		logprobs = append(logprobs, []float64{1, 1, 1, -4.1, -4.1, -4.1})
	}
	group["tokens"], group["masks"], group["inference_logprobs"] = tokens, masks, logprobs
	acknowledged = &atomic.Int64{}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var answer any = map[string]any{"status": "success", "uuid": 1, "current_step": 0, "queue_size": 0}
		switch {
		case strings.HasSuffix(r.URL.Path, "/ack"):
			acknowledged.Add(1)
		case r.URL.Path == "/batch":
			answer = map[string]any{"batch": []any{group, group}, "id": "lease"}
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(answer)
	}))
	t.Cleanup(server.Close)
	return plugintest.Ref("trajectories.fake.test", kind.Trajectories, outputs.Trajectories{URL: server.URL}), acknowledged
}

// update handles one offer as a sync block does; it returns the version and the log-probabilities with the published
// weights. A trainer that goes on meanwhile is asked for them once more.
func update(t *testing.T, c *weightclient.Client, step int64) (version int64, logprobs []float64) {
	t.Helper()
	p, err := c.Pending(t.Context(), 0, time.Minute)
	if err != nil || p == nil || p.Step != step {
		t.Fatalf("offered: %+v, %v; want step %d", p, err, step)
	}
	dir := t.TempDir()
	w, err := c.Publish(t.Context(), trainer.PublishRequest{Version: p.Version, Transport: "reload", Dir: dir})
	if err != nil || w.Path != dir || w.Precision != "float32" {
		t.Fatalf("publish version %d: %+v, %v", p.Version, w, err)
	}
	if _, err := os.Stat(filepath.Join(dir, "model.safetensors")); err != nil {
		t.Fatal(err)
	}
	if logprobs, err = c.Logprobs(t.Context(), []int{3, 14, 15, 9}); err != nil {
		t.Fatal(err)
	}
	if p.Ahead {
		if err := c.Taken(t.Context(), weightserver.Taken{Version: p.Version}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(300 * time.Millisecond) // a step takes some 30
		again, err := c.Logprobs(t.Context(), []int{3, 14, 15, 9})
		if err != nil || !slices.Equal(again, logprobs) {
			t.Errorf("weights that inference may still load have changed: %v, then %v, %v", logprobs, again, err)
		}
	}
	if err := c.Synced(t.Context(), weightserver.Done{Version: p.Version}); err != nil {
		t.Fatal(err)
	}
	return p.Version, logprobs
}

// A trainer of sixty lines of Python and twenty of Go learns, publishes, is verified, writes a checkpoint when asked,
// and resumes.
func TestASecondTrainerStandsOnTheKit(t *testing.T) {
	if testing.Short() {
		t.Skip("slow")
	}
	t.Parallel()
	python := torch(t)
	model := t.TempDir()
	workertest.Llama(t, model, 61)
	source, err := os.ReadFile("../../python/tests/plain_trainer.py")
	if err != nil {
		t.Fatal(err)
	}
	def := plainPlugin(fstest.MapFS{"plain_trainer.py": {Data: source, Mode: 0o600}})
	book, acknowledged := batches(t)
	checkpoints := t.TempDir()
	start := func(steps int64, change func(*pluginpb.StartRequest)) (*plugintest.Block, *weightclient.Client) {
		b := plugintest.Harness(t, def)
		b.Start(plainConfig{Model: model, Steps: steps, Trajectories: &book}, func(r *pluginpb.StartRequest) {
			r.Runtime, r.SyncedBy, r.CheckpointDir = &pluginpb.Runtime{Python: python}, []string{"sync.weights.test"},
				checkpoints
			change(r)
		})
		b.Ready()
		c := weightclient.New(b.Output("control_url"), b.Output("control_token"))
		t.Cleanup(c.Close)
		if _, err := c.Attach(t.Context(), weightserver.Attach{Address: "sync.weights.test", Every: 1,
			Transport: "reload"}); err != nil {
			t.Fatal(err)
		}
		return b, c
	}
	first, c := start(2, func(*pluginpb.StartRequest) {})
	one, before := update(t, c, 1)
	two, after := update(t, c, 2)
	if one != 1 || two != 2 || math.Abs(after[0]-before[0]) < 1e-6 {
		t.Errorf("versions %d and %d, log-probabilities %v and %v: want 1 and 2, and weights that change",
			one, two, before, after)
	}
	first.WaitPhase(sdk.Completed)
	if got := acknowledged.Load(); got != 2 {
		t.Errorf("%d batches were acknowledged, want 2", got)
	}
	second, c := start(3, func(r *pluginpb.StartRequest) {
		r.Resume, r.Policy = true, &pluginpb.Policy{Version: 2}
	})
	three, again := update(t, c, 2) // the served version is unknown: first inference gets the checkpoint's weights
	if three != 3 || math.Abs(again[0]-after[0]) > 1e-5 {
		t.Errorf("it resumed as version %d with log-probabilities %v, want 3 and %v", three, again, after)
	}
	if four, _ := update(t, c, 3); four != 4 {
		t.Errorf("version %d, want 4", four)
	}
	second.WaitPhase(sdk.Completed)
	if _, err := os.Stat(filepath.Join(checkpoints, "step_3", "optimizer.pt")); err != nil {
		t.Errorf("the last step has no checkpoint: %v", err)
	}
}
