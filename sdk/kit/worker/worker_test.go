package worker

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/fstest"
	"time"

	"github.com/zclconf/go-cty/cty"
	"go.uber.org/goleak"

	"github.com/recipe-rl/recipe/sdk"
	"github.com/recipe-rl/recipe/sdk/kind"
	"github.com/recipe-rl/recipe/sdk/kit/worker/workertest"
	"github.com/recipe-rl/recipe/sdk/proc"
	"github.com/recipe-rl/recipe/sdk/spec"
	"github.com/recipe-rl/recipe/sdk/trace"
	"github.com/recipe-rl/recipe/sdk/trainer"
	"github.com/recipe-rl/recipe/sdk/transport"
)

func TestMain(m *testing.M) {
	workertest.Main()
	goleak.VerifyTestMain(m)
}

// Config is a small block.
type Config struct {
	Model        string    `recipe:"model" worker:"model.path"`
	Steps        int64     `recipe:"steps" worker:"steps"`
	LearningRate float64   `recipe:"learning_rate" worker:"optimizer.learning_rate"`
	Trajectories *spec.Ref `recipe:"trajectories" reference:"trajectories"`
	PublishDtype string    `recipe:"publish_dtype"`
}

func program(req sdk.Request[Config]) (Program, error) {
	return Program{
		Module: "worker", Source: []fs.FS{fstest.MapFS{"worker/__main__.py": {Data: []byte("# played by the test\n")}}},
		Model: req.Config.Model, Settings: Settings(req.Config), Defaults: Defaults[Config](),
		Trajectories: req.Config.Trajectories,
		Transports:   []transport.Name{"live", "reload"}, PublishDtype: req.Config.PublishDtype,
	}, nil
}

// host records what it is given, and acts as the sync block.
type host struct {
	publish func(step int64) bool
	dir     string

	mu          sync.Mutex
	version     int64
	synced      []int64 // steps
	outputs     []Outputs
	phases      []string
	logs        []string
	metrics     map[string]float64
	checkpoints []sdk.CheckpointInfo
	handle      []byte
	failSync    error
	failTurn    error
	noTurn      bool // it never comes
	noSync      bool // no sync block fetches the weights
	shared      bool
	turns       []int64
	changed     chan struct{}
}

var _ trainer.Host = (*host)(nil)

func (h *host) note(change func()) {
	h.mu.Lock()
	change()
	h.mu.Unlock()
	select {
	case h.changed <- struct{}{}:
	default:
	}
}

func (h *host) Ready(o any)      { h.note(func() { h.outputs = append(h.outputs, o.(Outputs)) }) }
func (h *host) SetOutputs(o any) { h.note(func() { h.outputs = append(h.outputs, o.(Outputs)) }) }
func (h *host) Phase(p sdk.Phase, text string) {
	h.note(func() { h.phases = append(h.phases, string(p)+": "+text) })
}
func (h *host) Progress(int64, int64, string) {}
func (h *host) Log(level, text string)        { h.note(func() { h.logs = append(h.logs, level+": "+text) }) }
func (h *host) Checkpoint(c sdk.CheckpointInfo) {
	h.note(func() { h.checkpoints = append(h.checkpoints, c) })
}
func (h *host) Sample(sdk.Sample)                {}
func (h *host) Span(trace.Span)                  {}
func (h *host) SetHandle(data []byte)            { h.note(func() { h.handle = data }) }
func (h *host) Listening(string)                 {}
func (h *host) Weights(sdk.WeightsInfo)          {}
func (h *host) Begin(sdk.Activity) *sdk.Ongoing  { return nil }
func (h *host) Activities(func() []sdk.Activity) {}
func (h *host) Grace() time.Duration             { return 10 * time.Second }
func (h *host) Metrics(_ int64, m map[string]float64) {
	h.note(func() {
		for k, v := range m {
			h.metrics[k] = v
		}
	})
}

func (h *host) Turn(ctx context.Context, step int64) error {
	h.mu.Lock()
	h.turns = append(h.turns, step)
	err, forever := h.failTurn, h.noTurn
	h.mu.Unlock()
	if forever {
		<-ctx.Done()
		return ctx.Err()
	}
	return err
}

func (h *host) Shared() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.shared
}

func (h *host) Version() int64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.version
}

func (h *host) VersionOf(int64) int64 { return h.Version() }

// Sync publishes, verifies and acknowledges, as with a sync block.
func (h *host) Sync(ctx context.Context, step int64, snapshot trainer.Snapshot) (int64, error) {
	h.mu.Lock()
	h.synced = append(h.synced, step)
	err, nobody := h.failSync, h.noSync
	h.mu.Unlock()
	if nobody {
		h.note(func() {})
		<-ctx.Done()
		return 0, ctx.Err()
	}
	if err != nil || !h.publish(step) {
		return h.Version(), err
	}
	next := h.Version() + 1
	w, err := snapshot.Publish(ctx, trainer.PublishRequest{Version: next, Transport: "reload", Dir: h.dir})
	if err != nil {
		return 0, err
	}
	if w.Version != next || w.Format != "hf" || w.Precision != "float32" || w.Path != h.dir {
		return 0, fmt.Errorf("weights %+v", w)
	}
	if lp, err := snapshot.Logprobs(ctx, []int{1, 2, 3}); err != nil || len(lp) != 2 {
		return 0, fmt.Errorf("log-probabilities %v, %w", lp, err)
	}
	if ahead, ok := snapshot.(trainer.Ahead); ok {
		two := int64(2)
		if err := ahead.Taken(ctx, next, &two); err != nil {
			return 0, err
		}
	}
	h.mu.Lock()
	h.version = next
	h.mu.Unlock()
	return next, nil
}

// signal sends a signal to the worker.
func (h *host) signal(t *testing.T, s syscall.Signal) {
	t.Helper()
	h.mu.Lock()
	list := proc.Parse(h.handle)
	h.mu.Unlock()
	if len(list) != 1 {
		t.Fatalf("%d processes are recorded, want 1", len(list))
	}
	if err := syscall.Kill(list[0].PID, s); err != nil {
		t.Fatal(err)
	}
}

func (h *host) await(t *testing.T, what string, ok func() bool) {
	t.Helper()
	deadline := time.After(60 * time.Second)
	for {
		h.mu.Lock()
		done := ok()
		h.mu.Unlock()
		if done {
			return
		}
		select {
		case <-h.changed:
		case <-deadline:
			t.Fatalf("waited 60 s for %s; phases %q, log %q", what, h.phases, h.logs)
		}
	}
}

// start makes a trainer whose worker is the test binary.
func start(t *testing.T, mode string, change func(*sdk.Request[Config])) (*Trainer[Config],
	*host, sdk.Request[Config]) {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	req := sdk.Request[Config]{
		Block: sdk.Block{
			Address: "trainer.grpo.policy", Dir: t.TempDir(), RecipeDir: t.TempDir(), CheckpointDir: t.TempDir(),
			ControlToken: "control",
			Runtime:      sdk.Runtime{Python: exe}, Environment: workertest.Environment(mode),
			SyncedBy: []string{"sync.weights.policy"},
		},
		Config: Config{Model: "org/model", Steps: 3, LearningRate: 1e-5, Trajectories: &spec.Ref{
			Address: "trajectories.api", Kind: kind.Trajectories,
			Values: cty.ObjectVal(map[string]cty.Value{"url": cty.StringVal("http://127.0.0.1:8000"),
				"token": cty.StringVal("secret")}),
		}},
	}
	if change != nil {
		change(&req)
	}
	made := New(program)
	tr := &made
	h := &host{publish: func(int64) bool { return true }, dir: t.TempDir(), version: req.Policy.Version,
		metrics: map[string]float64{}, changed: make(chan struct{}, 1)}
	return tr, h, req
}

func TestTrainToTheEnd(t *testing.T) {
	t.Parallel()
	tr, h, req := start(t, "", nil)
	h.publish = func(step int64) bool { return step != 2 } // a period that does not include step 2
	if err := tr.Run(t.Context(), req, h); err != nil {
		t.Fatalf("Run: %v; log %q", err, h.logs)
	}
	if fmt.Sprint(h.synced) != "[1 2 3]" || h.version != 2 {
		t.Errorf("Sync was called for steps %v, version is %d; want one call for each of three steps and two versions",
			h.synced, h.version)
	}
	if h.metrics["reward/mean"] != 0.5 || h.metrics["staleness/histogram/1"] != 2 {
		t.Errorf("metrics %v", h.metrics)
	}
	last := h.outputs[len(h.outputs)-1]
	if !strings.HasSuffix(last.Checkpoint, "step_3") || last.Step != 3 || len(h.checkpoints) != 1 ||
		h.checkpoints[0].Version != 2 {
		t.Errorf("outputs %+v, checkpoints %+v", last, h.checkpoints)
	}
	info, err := os.Stat(filepath.Join(req.Dir, "config.json"))
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the worker's configuration holds tokens: mode %v, %v; want 0600", info.Mode(), err)
	}
}

func TestAWorkerThatGoesAheadIsTold(t *testing.T) {
	t.Parallel()
	for mode, want := range map[string]int{"ahead": 3, "": 0} {
		tr, h, req := start(t, mode, nil)
		if err := tr.Run(t.Context(), req, h); err != nil {
			t.Fatalf("Run: %v; log %q", err, h.logs)
		}
		var told []string
		for _, line := range h.logs {
			if strings.Contains(line, "taken: map[max_staleness:2 version:") {
				told = append(told, line)
			}
		}
		if len(told) != want {
			t.Errorf("mode %q: it was told %q, want %d times", mode, told, want)
		}
	}
}

func TestGroupsThatCannotBeUsedShowUntilABatchTrains(t *testing.T) {
	t.Parallel()
	tr, h, req := start(t, "poison", nil)
	if err := tr.Run(t.Context(), req, h); err != nil {
		t.Fatalf("Run: %v; log %q", err, h.logs)
	}
	if h.metrics["rejected_groups/total"] != 3 {
		t.Errorf("metrics %v, want three rejected groups", h.metrics)
	}
	log := strings.Join(h.logs, "\n")
	if !strings.Contains(log, "groups of batch 7 were rejected: 2 × shape, 1 × tokens (such as: an id of 10^26); they "+
		"are kept in /checkpoints/set-aside") {
		t.Errorf("the log does not say what was rejected, why and where it lies: %s", log)
	}
	phases := strings.Join(h.phases, "\n")
	before, after, found := strings.Cut(phases, "degraded: batch 7 was used up without a step: no "+
		"group of it can be trained")
	if !found || strings.Contains(before, "degraded") || !strings.Contains(after, "ready: ") {
		t.Errorf("the status does not show the batch until another trains: %s", phases)
	}
}

func TestRoundedWeightsAreToldOfOnce(t *testing.T) {
	t.Parallel()
	tr, h, req := start(t, "", func(r *sdk.Request[Config]) { r.Config.PublishDtype = "bfloat16" })
	if err := tr.Run(t.Context(), req, h); err != nil {
		t.Fatal(err)
	}
	if reported := strings.Count(strings.Join(h.logs, "\n"), "less precise than the trainer"); reported != 1 {
		t.Errorf("it was reported %d times, want once: %q", reported, h.logs)
	}
}

func TestWithoutASyncBlockTheWorkerDoesNotWait(t *testing.T) {
	t.Parallel()
	tr, h, req := start(t, "", func(r *sdk.Request[Config]) { r.SyncedBy = nil })
	if err := tr.Run(t.Context(), req, h); err != nil {
		t.Fatal(err)
	}
	if len(h.synced) != 0 {
		t.Errorf("Sync was called for steps %v", h.synced)
	}
}

func TestResumedWeightsAreServedFirst(t *testing.T) {
	t.Parallel()
	tr, h, req := start(t, "", func(r *sdk.Request[Config]) {
		r.Resume, r.Policy.Version, r.Config.Steps = true, 7, 4
	})
	if err := tr.Run(t.Context(), req, h); err != nil {
		t.Fatalf("%v; log %q", err, h.logs)
	}
	if fmt.Sprint(h.synced) != "[3 4]" || h.version != 9 {
		t.Errorf("Sync was called for steps %v, version is %d; want the checkpoint's step 3 first and versions 8 and 9",
			h.synced, h.version)
	}
	// The engine restarts a sync block only beside a trainer that is ready, and this trainer waits for it.
	ready := false
	for _, p := range h.phases {
		if strings.HasPrefix(p, "ready") {
			ready = true
		} else if ready {
			t.Errorf("phase %q after the block was ready: %q", p, h.phases)
		}
	}
}

func TestStopWritesACheckpoint(t *testing.T) {
	t.Parallel()
	tr, h, req := start(t, "hang", nil)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- tr.Run(ctx, req, h) }()
	h.await(t, "the worker to wait for a batch", func() bool {
		return strings.Contains(strings.Join(h.phases, "\n"),
			"waiting for a batch")
	})
	info, err := tr.SaveCheckpoint(t.Context())
	if err != nil || info.Path != "step_x" {
		t.Errorf("SaveCheckpoint: %+v, %v", info, err)
	}
	next := req.Config
	next.LearningRate = 2e-5
	if err := tr.Update(t.Context(), next); err != nil {
		t.Errorf("Update: %v", err)
	}
	next.Steps = 9
	if err := tr.Update(t.Context(), next); err == nil || !strings.Contains(err.Error(),
		"only a restart can change steps") {
		t.Errorf("Update: got %v, want the worker's refusal", err)
	}
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("Run: %v, want context.Canceled", err)
	}
	if len(h.checkpoints) != 1 {
		t.Errorf("checkpoints %+v, want the one that was written while stopping", h.checkpoints)
	}
	if _, err := tr.Logprobs(t.Context(), []int{1, 2}); err == nil {
		t.Error("Logprobs answered after the worker was gone")
	}
}

// A last checkpoint that was not written makes the stop a failure.
//
//docs:survival.md a block cannot be stopped in order: its last checkpoint cannot be written, it is killed …
func TestAStopThatWritesNoCheckpointFails(t *testing.T) {
	t.Parallel()
	for mode, want := range map[string]string{"full at the stop": "no space left on device",
		"killed at the stop": "before it had written a last checkpoint"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			tr, h, req := start(t, mode, nil)
			ctx, cancel := context.WithCancel(t.Context())
			ended := make(chan error, 1)
			go func() { ended <- tr.Run(ctx, req, h) }()
			h.await(t, "the worker to wait for a batch", func() bool {
				return strings.Contains(strings.Join(h.phases, "\n"),
					"waiting for a batch")
			})
			cancel()
			if err := <-ended; err == nil || errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), want) {
				t.Errorf("Run: %v, want %q", err, want)
			}
		})
	}
}

// A worker that somebody else ends writes its checkpoint and says "stopped". The training has not ended: the block
// fails, so that it is restarted and continues.
func TestAWorkerThatIsStoppedByAStrangerHasNotCompleted(t *testing.T) {
	t.Parallel()
	tr, h, req := start(t, "hang", nil)
	ended := make(chan error, 1)
	go func() { ended <- tr.Run(t.Context(), req, h) }()
	h.await(t, "the worker to wait for a batch", func() bool {
		return strings.Contains(strings.Join(h.phases, "\n"),
			"waiting for a batch")
	})
	h.signal(t, syscall.SIGTERM)
	var e *sdk.Error
	if err := <-ended; !errors.As(err, &e) || e.Remedy == "" {
		t.Errorf("Run: %v; want an error that says what to do", err)
	}
	if len(h.checkpoints) != 1 {
		t.Errorf("checkpoints %+v, want the one of the stop", h.checkpoints)
	}
}

// A worker that dies while no sync block fetches its weights is explained at once: the sync block may be away for
// minutes.
func TestAWorkerThatDiesWhileItsWeightsWaitIsExplained(t *testing.T) {
	t.Parallel()
	tr, h, req := start(t, "", nil)
	h.noSync = true
	ended := make(chan error, 1)
	go func() { ended <- tr.Run(t.Context(), req, h) }()
	h.await(t, "weights that wait", func() bool { return len(h.synced) == 1 })
	h.signal(t, syscall.SIGKILL)
	select {
	case err := <-ended:
		if err == nil || !strings.Contains(err.Error(), "the worker was killed") {
			t.Errorf("Run: %v; want that the worker was killed", err)
		}
	case <-time.After(60 * time.Second):
		t.Fatal("waited 60 s for the death of the worker to be noticed")
	}
}

func TestFailures(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		mode   string
		change func(*sdk.Request[Config])
		want   string
		remedy string
	}{
		"the worker says why":               {"error", nil, "the GPU is full", "1. lower row_tokens\n2. use lora"},
		"the worker cannot":                 {"crash", nil, "lacks a package", "install the package"},
		"wrong settings":                    {"config", nil, "settings are wrong", "correct"},
		"a package of a library is missing": {"package", nil, "lacks a package", "install the package"},
		"a library runs out of memory":      {"memory", nil, "the GPU ran out of memory", "fewer tokens"},
		"an exception without a word":       {"bug", nil, "training failed: KeyError: 'surprise'", ""},
		"no trajectory API": {"", func(r *sdk.Request[Config]) { r.Config.Trajectories = nil }, "no trajectory API",
			"trajectories"},
		"no interpreter": {"", func(r *sdk.Request[Config]) { r.Runtime.Python = "/no/such/python" }, "cannot be run",
			"runtime"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tr, h, req := start(t, c.mode, c.change)
			err := tr.Run(t.Context(), req, h)
			var e *sdk.Error
			if !errors.As(err, &e) || !strings.Contains(e.Summary, c.want) || !strings.Contains(e.Remedy, c.remedy) {
				t.Fatalf("got %v (%+v), want %q with a remedy of %q", err, e, c.want, c.remedy)
			}
		})
	}
	t.Run("the sync block fails", func(t *testing.T) {
		t.Parallel()
		tr, h, req := start(t, "", nil)
		h.failSync = errors.New("served weights differ")
		if err := tr.Run(t.Context(), req, h); err == nil || !strings.Contains(err.Error(), "served weights differ") {
			t.Fatalf("got %v, want the sync block's reason", err)
		}
	})
}

func TestPublishByAnUnknownTransport(t *testing.T) {
	t.Parallel()
	tr, h, req := start(t, "hang", nil)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- tr.Run(ctx, req, h) }()
	h.await(t, "the worker to wait for a batch", func() bool {
		return strings.Contains(strings.Join(h.phases, "\n"),
			"waiting for a batch")
	})
	var e *sdk.Error
	if _, err := tr.Publish(ctx, trainer.PublishRequest{Transport: "pigeon"}); !errors.As(err, &e) ||
		!strings.Contains(e.Detail, "reload") {
		t.Errorf("got %v, want an error that lists what is offered", err)
	}
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("Run: %v, want context.Canceled", err)
	}
}
