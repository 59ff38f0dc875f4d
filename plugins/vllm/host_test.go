package vllm

import (
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/recipe-rl/recipe/sdk"
	"github.com/recipe-rl/recipe/sdk/inference"
	"github.com/recipe-rl/recipe/sdk/kit/engine"
	"github.com/recipe-rl/recipe/sdk/proc"
	"github.com/recipe-rl/recipe/sdk/trace"
)

// recorder is a host that records its calls.
type recorder struct {
	mu       sync.Mutex
	outputs  []any
	phases   []string
	taken    []bool
	logs     []string
	handle   []byte
	replicas []inference.Replica
	loaded   []int64
	changed  chan struct{}
	serving  *engine.Supervisor
}

var _ inference.Host = (*recorder)(nil)

// serve passes the started engine to the recorder, as the SDK does by itself.
func (r *recorder) serve(s *engine.Supervisor) {
	r.note(func() { r.serving = s })
	r.Changed()
}

// Changed reads the replicas as the SDK does.
func (r *recorder) Changed() {
	r.note(func() {
		if r.serving == nil {
			return
		}
		r.replicas = r.serving.Replicas()
		for _, replica := range r.replicas {
			if replica.Version != inference.UnknownVersion {
				r.loaded = append(r.loaded, replica.Version)
			}
		}
		if len(r.replicas) > 0 && len(r.outputs) == 0 {
			r.outputs = append(r.outputs, r.serving.Outputs())
		}
	})
}

func newRecorder() *recorder { return &recorder{changed: make(chan struct{}, 1)} }

func (r *recorder) note(change func()) {
	r.mu.Lock()
	change()
	r.mu.Unlock()
	select {
	case r.changed <- struct{}{}:
	default:
	}
}

func (r *recorder) Ready(o any)      { r.note(func() { r.outputs = append(r.outputs, o) }) }
func (r *recorder) SetOutputs(o any) { r.note(func() { r.outputs = append(r.outputs, o) }) }
func (r *recorder) Phase(p sdk.Phase, text string) {
	r.note(func() { r.phases = append(r.phases, string(p)+": "+text) })
}
func (r *recorder) MemoryTaken(taken bool)        { r.note(func() { r.taken = append(r.taken, taken) }) }
func (r *recorder) Progress(int64, int64, string) {}
func (r *recorder) Metrics(int64, map[string]float64) {
}
func (r *recorder) Log(level, text string) {
	r.note(func() { r.logs = append(r.logs, level+": "+text) })
}
func (r *recorder) Checkpoint(sdk.CheckpointInfo) {}
func (r *recorder) Sample(sdk.Sample)             {}
func (r *recorder) Span(trace.Span)               {}
func (r *recorder) Listening(string)              {}

func (r *recorder) SetHandle(h []byte)               { r.note(func() { r.handle = h }) }
func (r *recorder) Weights(sdk.WeightsInfo)          {}
func (r *recorder) Begin(sdk.Activity) *sdk.Ongoing  { return nil }
func (r *recorder) Activities(func() []sdk.Activity) {}
func (r *recorder) Grace() time.Duration             { return 4 * time.Second }

// await waits until ok is true of the recorder; otherwise the test fails with everything that was recorded.
func (r *recorder) await(t *testing.T, what string, ok func(*recorder) bool) {
	t.Helper()
	deadline := time.After(60 * time.Second)
	for {
		r.mu.Lock()
		done := ok(r)
		r.mu.Unlock()
		if done {
			return
		}
		select {
		case <-r.changed:
		case <-deadline:
			r.mu.Lock()
			defer r.mu.Unlock()
			t.Fatalf("waited 60 s for %s\nphases: %s\nlog: %s", what, strings.Join(r.phases, "\n  "),
				strings.Join(r.logs, "\n  "))
		}
	}
}

// served are the replicas as the host last saw them.
func (r *recorder) served() []inference.Replica {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.replicas
}

// versions are those that the host saw as loaded.
func (r *recorder) versions() []int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.loaded)
}

// programs is the handle as it was last recorded.
func (r *recorder) programs() []byte {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.handle
}

func (r *recorder) text() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return strings.Join(append(append([]string{}, r.phases...), r.logs...), "\n")
}

// eventually polls a condition without notifications.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(60 * time.Second); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("waited 60 s for %s", what)
		}
	}
}

// portOf is where a program of a handle listens.
func portOf(t *testing.T, handle []byte, name string) int {
	t.Helper()
	for _, h := range proc.Parse(handle) {
		if h.Name == name && len(h.Ports) == 1 {
			return h.Ports[0]
		}
	}
	t.Fatalf("the handle %s names no %s", handle, name)
	return 0
}

func restarts(n int64) engine.LimitSettings { return engine.LimitSettings{MaxRestarts: n} }

// request is a block whose server program is the test binary.
func request(t *testing.T, c Config) sdk.Request[Config] {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	if c.Replicas == 0 {
		c.Replicas = 1
	}
	c.StartTimeout, c.UpdateTimeout = time.Minute, time.Minute
	return sdk.Request[Config]{Config: c, Block: sdk.Block{
		Address: "inference.vllm.policy", Dir: t.TempDir(), RecipeDir: t.TempDir(),
		Runtime: sdk.Runtime{Python: exe}, ControlToken: "control", Environment: map[string]string{fakeMark: "1"},
	}}
}
