package worker_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/recipe-rl/recipe/sdk"
	"github.com/recipe-rl/recipe/sdk/kit/worker"
	"github.com/recipe-rl/recipe/sdk/kit/worker/workertest"
	"github.com/recipe-rl/recipe/sdk/pluginpb"
	"github.com/recipe-rl/recipe/sdk/plugintest"
	"github.com/recipe-rl/recipe/sdk/proc"
	"github.com/recipe-rl/recipe/sdk/trainer"
)

// prepared is a block whose worker, one in PyTorch, has done what it can before the trajectory API exists.
func prepared(t *testing.T, shared bool) (b *plugintest.Block, config plainConfig, opts plugintest.Option) {
	t.Helper()
	python := torch(t)
	source, err := os.ReadFile("../../python/tests/plain_trainer.py")
	if err != nil {
		t.Fatal(err)
	}
	book, _ := batches(t)
	model := t.TempDir()
	workertest.Llama(t, model, 61)
	config = plainConfig{Model: model, Steps: 2, Trajectories: &book}
	b = plugintest.Harness(t, plainPlugin(fstest.MapFS{"plain_trainer.py": {Data: source, Mode: 0o600}}))
	opts = func(r *pluginpb.StartRequest) {
		r.Runtime, r.SharesDevices = &pluginpb.Runtime{Python: python}, shared
	}
	b.Prepare(config, opts)
	b.WaitPhase(sdk.Prepared)
	return b, config, opts
}

// played is prepared with a worker that is this test's binary.
func played(t *testing.T, gpus int64, mode string) (b *plugintest.Block, config plainConfig, opts plugintest.Option) {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	book, _ := batches(t)
	config = plainConfig{Model: "org/model", Steps: 2, Trajectories: &book}
	def := trainer.New("played", "plays a trainer", func() trainer.Plugin[plainConfig] {
		t := worker.New(func(r sdk.Request[plainConfig]) (worker.Program, error) {
			return worker.Program{Module: "worker", Source: []fs.FS{fstest.MapFS{"worker/__main__.py": {Mode: 0o600}}},
				Model: r.Config.Model, Settings: worker.Settings(r.Config), Trajectories: r.Config.Trajectories}, nil
		})
		return &t
	}, sdk.WithOutputs(worker.Outputs{}))
	b = plugintest.Harness(t, def)
	opts = func(r *pluginpb.StartRequest) {
		r.Runtime, r.SharesDevices = &pluginpb.Runtime{Python: exe}, true
		r.Placement, r.Environment = &pluginpb.Placement{Gpus: gpus}, workertest.Environment(mode)
	}
	b.Prepare(config, opts)
	b.WaitPhase(sdk.Prepared)
	return b, config, opts
}

// pid is that of the worker.
func pid(t *testing.T, b *plugintest.Block) int {
	t.Helper()
	handles := proc.Parse(b.Status().GetHandle())
	if len(handles) != 1 || !handles[0].Alive() {
		t.Fatalf("programs of the block: %v, want a worker that runs", handles)
	}
	return handles[0].PID
}

func loaded(b *plugintest.Block) bool {
	return slices.ContainsFunc(b.Events(), func(e *pluginpb.Event) bool {
		return strings.Contains(e.GetPhase().GetMessage(), "loading the model")
	})
}

func TestTheWorkerThatWasPreparedIsTheOneThatTrains(t *testing.T) {
	if testing.Short() {
		t.Skip("slow")
	}
	t.Parallel()
	for name, shared := range map[string]bool{"on a device of its own": false, "on a device that it shares": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b, config, opts := prepared(t, shared)
			before := pid(t, b)
			file, err := os.ReadFile(filepath.Join(b.Dir, "config.json"))
			if err != nil || !strings.Contains(string(file), `"url": ""`) {
				t.Errorf("the configuration of the stage names the trajectory API, which is not known yet: %v", err)
			}
			if !loaded(b) {
				t.Error("it did not say that it loads the model")
			}
			b.Start(config, opts)
			b.Ready()
			if after := pid(t, b); after != before {
				t.Errorf("worker %d was prepared, %d trains", before, after)
			}
			b.WaitPhase(sdk.Completed)
		})
	}
}

func TestChangedSettingsRestartAPreparedWorker(t *testing.T) {
	t.Parallel()
	b, config, opts := played(t, 1, "patient")
	before := pid(t, b)
	config.Steps = 1
	b.Start(config, opts)
	b.Wait("log of it", func(e *pluginpb.Event) bool {
		return e.GetLog().GetMessage() == "the worker is started anew: a setting changed since it was prepared"
	})
	b.Ready()
	if after := pid(t, b); after == before {
		t.Errorf("worker %d trains with other settings than it was given", after)
	}
}

// Ranks of a trainer over several GPUs meet on the GPUs, which they must leave alone while they share them.
func TestATrainerOverSharedGPUsIsNotPrepared(t *testing.T) {
	t.Parallel()
	b, _, _ := played(t, 2, "patient")
	if handle := b.Status().GetHandle(); len(handle) > 0 {
		t.Errorf("it has a program: %s", handle)
	}
}

func TestAWorkerThatDiesWhilePreparing(t *testing.T) {
	t.Parallel()
	b, _, _ := played(t, 1, "patient")
	handles := proc.Parse(b.Status().GetHandle())
	if err := proc.KillAll(t.Context(), handles); err != nil {
		t.Fatal(err)
	}
	if e := b.Wait("failure", func(e *pluginpb.Event) bool {
		return sdk.Phase(e.GetPhase().GetPhase()).Over()
	}); !strings.Contains(e.GetPhase().GetMessage(), "the worker was killed") {
		t.Errorf("it ended with %v", e)
	}
}

func TestAStopEndsAWorkerThatIsPrepared(t *testing.T) {
	t.Parallel()
	b, _, _ := played(t, 1, "patient")
	handles := proc.Parse(b.Status().GetHandle())
	if err := b.Stop(20 * time.Second); err != nil {
		t.Fatal(err)
	}
	b.WaitPhase(sdk.Stopped)
	if len(handles) != 1 || handles[0].Alive() {
		t.Errorf("after the stop: %v", handles)
	}
}

// A worker that has prepared in host memory goes on on the GPU when inference has taken its memory there, if it can.
func TestAWorkerGoesOnBesideInference(t *testing.T) {
	t.Parallel()
	preparing := func(b *plugintest.Block) (said []string) {
		for _, e := range b.Events() {
			if p := e.GetPhase(); p.GetPhase() == string(sdk.Preparing) || p.GetPhase() == string(sdk.Prepared) {
				said = append(said, p.GetPhase()+" "+p.GetMessage())
			}
		}
		return said
	}
	settled := func(r *pluginpb.StartRequest) { r.SharesDevices = false }
	t.Run("and is started then", func(t *testing.T) {
		t.Parallel()
		b, config, opts := played(t, 1, "beside")
		before := pid(t, b)
		if err := b.TryPrepare(config, opts, settled); err != nil {
			t.Fatal(err)
		}
		b.Wait("its second preparation", func(*pluginpb.Event) bool {
			return slices.Equal(preparing(b), []string{"preparing ", "preparing importing PyTorch",
				"preparing loading the model", "prepared ", "preparing on the device, beside inference",
				"preparing loading the model", "prepared "})
		})
		b.Start(config, opts)
		b.Ready()
		if after := pid(t, b); after != before {
			t.Errorf("worker %d was prepared, %d trains", before, after)
		}
	})
	t.Run("and is started meanwhile", func(t *testing.T) {
		t.Parallel()
		b, config, opts := played(t, 1, "beside")
		before := pid(t, b)
		if err := b.TryPrepare(config, opts, settled); err != nil {
			t.Fatal(err)
		}
		b.Start(config, opts)
		b.Ready()
		if after := pid(t, b); after != before {
			t.Errorf("worker %d was prepared, %d trains", before, after)
		}
	})
	t.Run("unless it cannot", func(t *testing.T) {
		t.Parallel()
		b, config, opts := played(t, 1, "patient")
		if err := b.TryPrepare(config, opts, settled); err != nil {
			t.Fatal(err)
		}
		b.Start(config, opts)
		b.Ready()
		if said := preparing(b); slices.Contains(said, "preparing on the device, beside inference") {
			t.Errorf("it was told to: %q", said)
		}
	})
}
