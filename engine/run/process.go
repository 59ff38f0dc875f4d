package run

import (
	"context"
	"errors"
	"time"

	"github.com/recipe-rl/recipe/schema"
	"github.com/recipe-rl/recipe/schema/addr"
	"github.com/recipe-rl/recipe/sdk/pluginpb"
)

// ErrGone is returned by Host.Reattach when the recorded process is no longer alive.
var ErrGone = errors.New("the recorded process is gone")

// Host starts plugin processes and finds them again. engine/host implements it; tests put fakes in its place.
type Host interface {
	// Launch starts the plugin of a block; its files go to dir. A host that fails on its way leaves no process behind.
	Launch(ctx context.Context, block addr.Block, plugin *schema.PluginSchema, dir string) (Process, error)
	// Reattach connects to the process that Launch recorded in dir, or returns ErrGone.
	Reattach(ctx context.Context, dir string) (Process, error)
	// Probe says whether the process recorded in dir is alive, without talking to it.
	Probe(dir string) (pid int, alive bool)
	// Sweep ends what a dead plugin has left running: the programs named in its handle. It is called before a new start.
	Sweep(ctx context.Context, dir string, handle []byte) error
}

// Process is one plugin process.
type Process interface {
	PID() int
	Attach(ctx context.Context, engine string, lease time.Duration) error
	Start(ctx context.Context, req *pluginpb.StartRequest) error
	Update(ctx context.Context, config []byte) error
	// Stop drains the block within the grace period; the process stays up.
	Stop(ctx context.Context, grace time.Duration, reason string) error
	Status(ctx context.Context) (*pluginpb.StatusResponse, error)
	// Watch calls fn with every event after the cursor until ctx ends or the stream breaks.
	Watch(ctx context.Context, after uint64, fn func(*pluginpb.Event)) error
	// Exit ends the process, first by asking, then by killing its whole session, and returns when it is gone.
	Exit(ctx context.Context) error
	// Exited is closed when the process has ended.
	Exited() <-chan struct{}
	// LastLines returns the end of what the process wrote to stderr.
	LastLines(n int) []string
	// Close lets go of the process without ending it.
	Close()
}
