package plugintest

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"github.com/recipe-rl/recipe/sdk"
	"github.com/recipe-rl/recipe/sdk/outputs"
	"github.com/recipe-rl/recipe/sdk/trainer"
)

// FakeTrainerConfig is the configuration of FakeTrainer.
type FakeTrainerConfig struct {
	Steps int64         `recipe:"steps" default:"3" min:"0" doc:"Optimizer steps to make"`
	Delay time.Duration `recipe:"delay" default:"0s" doc:"How long a step takes"`
	Until string        `recipe:"until" doc:"File that a step waits for"`
	Ahead bool          `recipe:"ahead" default:"false" doc:"Work on while inference loads the weights"`
}

// FakeTrainer is a trainer without a model, for tests of sync plugins and of the engine: its weights are one number,
// which is the step. It checkpoints that number after each step and continues from it.
func FakeTrainer() *sdk.Definition {
	return trainer.New("fake", "A trainer without a model, for tests.",
		func() trainer.Plugin[FakeTrainerConfig] { return &fakeTrainer{} })
}

type fakeTrainer struct {
	mu   sync.Mutex
	step int64
	host trainer.Host
	dir  string

	memory fakeMemory
}

var (
	_ trainer.Plugin[FakeTrainerConfig] = (*fakeTrainer)(nil)
	_ sdk.Checkpointer                  = (*fakeTrainer)(nil)
)

func (f *fakeTrainer) Run(ctx context.Context, req sdk.Request[FakeTrainerConfig], host trainer.Host) error {
	f.host, f.dir = host, req.CheckpointDir
	f.memory.dir = req.Dir
	defer f.memory.end()
	if req.Resume {
		if err := f.restore(); err != nil {
			return err
		}
	}
	host.Ready(outputs.Trainer{Model: FakeModel, Step: f.step})
	// Before the first step, so that a trainer that continues an earlier attempt publishes the weights that it has.
	if _, err := host.Sync(ctx, f.step, fakeSnapshot{f}); err != nil {
		return err
	}
	settle := func() error { return nil }
	for f.step < req.Config.Steps {
		if err := host.Turn(ctx, f.step+1); err != nil {
			return err
		}
		host.Log("info", fmt.Sprintf("trains step %d", f.step+1))
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(req.Config.Delay):
		}
		if err := awaitFile(ctx, req.Config.Until); err != nil {
			return err
		}
		if err := settle(); err != nil {
			return err
		}
		f.mu.Lock()
		f.step++
		f.memory.trained(f.step)
		f.mu.Unlock()
		host.Progress(f.step, req.Config.Steps, "steps")
		var err error
		if settle, err = f.offer(ctx, req.Config.Ahead); err != nil {
			return err
		}
	}
	if err := settle(); err != nil {
		return err
	}
	host.SetOutputs(outputs.Trainer{Model: FakeModel, Step: f.step, Checkpoint: f.path()})
	return nil
}

// offer offers the weights of a step. It returns when the next may begin; settle returns when the weights may change.
func (f *fakeTrainer) offer(ctx context.Context, ahead bool) (settle func() error, err error) {
	taken, over := make(chan struct{}), make(chan error, 1)
	var snapshot trainer.Snapshot = fakeSnapshot{f}
	if ahead {
		snapshot = fakeAhead{fakeSnapshot{f}, sync.OnceFunc(func() { close(taken) })}
	}
	go func() {
		version, err := f.host.Sync(ctx, f.step, snapshot)
		if err == nil {
			f.host.Metrics(f.step, map[string]float64{"policy_version": float64(version)})
			_, err = f.SaveCheckpoint(ctx)
		}
		over <- err
	}()
	select {
	case <-taken:
		return func() error { return <-over }, nil
	case err := <-over:
		return func() error { return nil }, err
	}
}

// awaitFile waits until a file exists; without a name it returns at once.
func awaitFile(ctx context.Context, path string) error {
	for path != "" {
		if _, err := os.Stat(path); err == nil {
			break
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(time.Millisecond):
		}
	}
	return nil
}

func (f *fakeTrainer) path() string { return filepath.Join(f.dir, "step") }

func (f *fakeTrainer) restore() error {
	data, err := os.ReadFile(f.path())
	if os.IsNotExist(err) {
		return nil
	}
	if err == nil {
		f.step, err = strconv.ParseInt(string(data), 10, 64)
	}
	return err
}

// SaveCheckpoint writes the step.
func (f *fakeTrainer) SaveCheckpoint(context.Context) (sdk.CheckpointInfo, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	next := f.path() + ".new"
	if err := os.WriteFile(next, []byte(strconv.FormatInt(f.step, 10)), 0o600); err != nil {
		return sdk.CheckpointInfo{}, err
	}
	if err := os.Rename(next, f.path()); err != nil {
		return sdk.CheckpointInfo{}, err
	}
	c := sdk.CheckpointInfo{Path: f.path(), Step: f.step, Version: f.host.Version()}
	f.host.Checkpoint(c)
	return c, nil
}

// fakeSnapshot is the fake trainer's weights between two steps.
type fakeSnapshot struct{ f *fakeTrainer }

func (s fakeSnapshot) Publish(_ context.Context, r trainer.PublishRequest) (sdk.Weights, error) {
	f := s.f
	f.mu.Lock()
	defer f.mu.Unlock()
	if r.Dir == "" {
		return f.share(r)
	}
	path, err := FakeWeights(r.Dir, float64(f.step))
	return sdk.Weights{Version: r.Version, Path: path, Format: "fake", Transport: r.Transport, Precision: "float64"},
		err
}

func (s fakeSnapshot) Logprobs(_ context.Context, tokens []int) ([]float64, error) {
	s.f.mu.Lock()
	defer s.f.mu.Unlock()
	return FakeLogprobs(float64(s.f.step), tokens), nil
}

// fakeAhead is a snapshot of a trainer that works on.
type fakeAhead struct {
	fakeSnapshot
	taken func()
}

// Taken lets it work on.
func (s fakeAhead) Taken(context.Context, int64, *int64) error {
	s.taken()
	return nil
}
