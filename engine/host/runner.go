// Package host is the engine's side of the plugin protocol: it starts plugin processes, reattaches to them after the
// engine has died, calls them and ends them with everything that they have started.
//
// A plugin process is started through a Runner in a session of its own with its output in files, so that it
// survives the engine. A later engine finds it by reattach.json in the block's directory.
package host

import (
	"context"
	"errors"
	"io"
	"os"
	"time"
)

// Runner starts plugin processes: Local on this machine; an agent on another machine.
type Runner interface {
	// Start starts a process in a session of its own. The context bounds the start only.
	Start(ctx context.Context, c Command) (Process, error)
	// Find returns the process of an earlier Start, by this engine or by an earlier one. The error is ErrGone when it
	// certainly does not run any more.
	Find(ctx context.Context, id Identity) (Process, error)
	// Sweep ends the leftovers of a dead process: its session and the programs of its handle, except those of the
	// handle to keep. It does nothing when there are none.
	Sweep(ctx context.Context, id Identity, handle, keep []byte) error
}

// ErrGone reports that a plugin process has ended.
var ErrGone = errors.New("the plugin process has ended")

// Command is a process to start.
type Command struct {
	Argv   []string
	Env    []string // all of it
	Dir    string   // where it starts, and where its output goes: files stdout and stderr, mode 0600
	Socket string   // the directory for its socket, which only this user can enter
	Mark   string   // of a process on this machine; empty: it is given one
	// what a process on this machine inherits and keeps open without using it: the lock on the directory for its socket
	Held []*os.File `json:"-"`
	// Listener is the socket that the block's last process on this machine listened on; nil: none was kept.
	Listener *os.File `json:"-"`
}

// Identity identifies a process, also among later ones with the same pid.
type Identity struct {
	Host  string `json:"host,omitempty"` // of the agent; empty for this machine
	PID   int    `json:"pid"`
	Start uint64 `json:"start"` // when it was started, in the machine's own unit
	Boot  string `json:"boot"`  // of the machine
	// random, also in the process's environment: a record alone proves nothing
	Mark string `json:"mark"`
}

// Process is a plugin process.
type Process interface {
	Identity() Identity
	// Output is what the process has written to stdout, from the beginning; it ends when the process does.
	Output() (io.ReadCloser, error)
	// Exited is closed when the process has ended.
	Exited() <-chan struct{}
	// Ended says how the process ended, such as "exit status 3" or "signal: killed"; empty while it runs and when it
	// is unknown, as for a process that an earlier engine has started.
	Ended() string
	// Kill ends the process and its session at once and waits until they have ended, or until the context is done.
	Kill(ctx context.Context) error
	// Reach translates the address of a socket that the process has opened to one that this machine can connect to.
	Reach(network, address string) (string, string, error)
	// Wait returns when the process has ended or Release was called.
	Wait()
	// Release stops watching. The process continues.
	Release()
}

// Distant is what a Process on another machine can say.
type Distant interface {
	// Cut is since when its machine cannot be reached; zero while it can. The process may run on there.
	Cut() time.Time
}
