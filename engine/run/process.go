package run

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/zclconf/go-cty/cty"

	"github.com/recipe-rl/recipe/engine/host"
	"github.com/recipe-rl/recipe/engine/remote"
	blockevent "github.com/recipe-rl/recipe/internal/event"
	"github.com/recipe-rl/recipe/schema/addr"
	"github.com/recipe-rl/recipe/sdk"
	"github.com/recipe-rl/recipe/sdk/spec"
)

// Host starts plugin processes and finds them again. Processes implements it; tests put fakes in its place.
type Host interface {
	// Launch starts the plugin process of a block. What an earlier process in the same directory left behind is ended
	// first, except the programs of the handle, which the new process adopts. A failed launch leaves nothing behind.
	Launch(ctx context.Context, l Launch) (Process, error)
	// Reattach connects to the process recorded in dir. The error is host.ErrGone or host.ErrNoRecord when there is
	// none.
	Reattach(ctx context.Context, dir string) (Process, error)
	// Probe reports whether the process recorded in dir is alive, without talking to it.
	Probe(ctx context.Context, dir string) (pid int, alive bool)
	// Sweep ends the process recorded in dir and what it started, without talking to it.
	Sweep(ctx context.Context, dir string) error
	// LastEvents returns the events after a number that a dead process has left in dir.
	LastEvents(dir string, after uint64, outputs *spec.Schema) ([]blockevent.Event, error)
	// LastLines returns the lines that say best why the process in dir ended, of those that it printed.
	LastLines(dir string, n int) []string
}

// Launch names which plugin process to start.
type Launch struct {
	Block  addr.Block
	Plugin string // that runs it
	RunID  string
	Dir    string
	Handle []byte
	Source string    // of the plugin's schema
	Config cty.Value // the block's body, on which it depends what its process gets of the environment
	Placed *Placed   // the job that it runs in; nil: this machine
	// Listener is the socket that its last process on this machine listened on; nil: none was kept.
	Listener *os.File
}

// Process is one plugin process; *host.Plugin is one.
type Process interface {
	PID() int
	Attach(ctx context.Context, engine string, lease time.Duration) error
	Prepare(ctx context.Context, s host.Start) error // config may hold unknown values
	Start(ctx context.Context, s host.Start) error
	Update(ctx context.Context, config cty.Value) error
	Stop(ctx context.Context, grace time.Duration, kill bool, reason string) error
	Status(ctx context.Context) (host.Status, error)
	Stacks(ctx context.Context) ([]host.Stack, error)
	Evaluate(ctx context.Context, limit int) (map[string]float64, sdk.TaskScores, error)
	EvaluateTasks(ctx context.Context, req sdk.EvaluateTasks) (sdk.TaskScores, error)
	Checkpoint(ctx context.Context) (sdk.CheckpointInfo, error)
	Pause(ctx context.Context, paused bool) error
	Watch(ctx context.Context, after uint64, each func(blockevent.Event)) error
	Exit(ctx context.Context) error
	Exited() <-chan struct{}
	Ended() string // how it ended, as far as that can be known
	Release()
}

// Processes is the Host of real plugin processes on this machine.
type Processes struct{ Catalog *host.Catalog }

var _ Host = Processes{}

// Launch implements Host.
func (p Processes) Launch(ctx context.Context, l Launch) (Process, error) {
	argv, env, err := p.Catalog.Command(l.Block.Kind, l.Plugin, l.Source)
	if err != nil {
		return nil, fmt.Errorf("find the plugin: %w", err)
	}
	// The address is for people who look at the list of processes.
	argv = append(argv, l.Block.String())
	spec := host.LaunchSpec{
		Kind: l.Block.Kind, Name: l.Plugin, RunID: l.RunID, Block: l.Block.String(), Command: argv,
		Dir: l.Dir, Env: append(p.Catalog.Environment(l.Block.Kind, l.Plugin, l.Config, os.Environ()), env...),
		Keep: l.Handle, Listener: l.Listener,
	}
	if len(env) > 0 { // this program reads from a variable which plugin to serve
		spec.Build = p.Catalog.Build
	}
	if l.Placed != nil {
		return p.launchPlaced(ctx, l, spec)
	}
	if remote.Placed(l.Dir) { // its recipe placed it elsewhere before
		if err := p.Sweep(ctx, l.Dir); err != nil {
			return nil, err
		}
	}
	return host.Launch(ctx, spec)
}

// Reattach implements Host.
func (Processes) Reattach(ctx context.Context, dir string) (Process, error) {
	p, err := host.Reattach(ctx, dir, nil)
	if err != nil {
		return nil, err
	}
	return p, nil
}

// Probe implements Host. A block with a job is alive until its executor reports the job as over. Its pid belongs to
// another machine.
func (p Processes) Probe(ctx context.Context, dir string) (int, bool) {
	if !remote.Placed(dir) {
		return host.Probe(ctx, dir, nil)
	}
	s, err := remote.Probe(ctx, dir, p.openRecorded)
	return 0, err != nil || !s.State.Over()
}

// Sweep implements Host. A job is given back.
func (p Processes) Sweep(ctx context.Context, dir string) error {
	if remote.Placed(dir) {
		if err := remote.Sweep(ctx, dir, p.openRecorded); err != nil {
			return err
		}
	}
	return host.Sweep(ctx, dir, nil)
}

// LastEvents implements Host.
func (Processes) LastEvents(dir string, after uint64, outputs *spec.Schema) ([]blockevent.Event, error) {
	list, err := host.LastEvents(dir, after, outputs)
	here := remote.Here(dir)
	for i, e := range list {
		list[i] = withPaths(e, here)
	}
	return list, err
}

// LastLines implements Host.
func (Processes) LastLines(dir string, n int) []string { return host.LastLines(dir, n) }
