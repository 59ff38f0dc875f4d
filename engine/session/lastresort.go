package session

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/recipe-rl/recipe/engine/event"
	"github.com/recipe-rl/recipe/engine/remote"
	"github.com/recipe-rl/recipe/engine/run"
	"github.com/recipe-rl/recipe/engine/state"
	"github.com/recipe-rl/recipe/internal/peer"
	"github.com/recipe-rl/recipe/sdk"
	"github.com/recipe-rl/recipe/sdk/proc"
)

const (
	// silentAfter is how long an engine may take to answer a request for its identity. A busy one answers at once.
	silentAfter = 10 * time.Second
	// killedWithin is how long a process that was killed may take to be gone.
	killedWithin = 10 * time.Second
	// orderWithin is how long an engine may take to accept the order to kill everything.
	orderWithin = 20 * time.Second
)

// SilentError means that an engine holds the run and does not answer. The error that has it says what to do.
type SilentError struct {
	PID   int
	State string
}

func (e *SilentError) Error() string { return fmt.Sprintf("pid %d %s", e.PID, e.State) }

// silent is the error for an engine that has not answered within this time.
func silent(pid int, long time.Duration) error {
	e := &SilentError{PID: pid, State: proc.Halted(pid)}
	remedy := "recipe stop --kill ends the engine and every process of the run, and recipe apply continues the run " +
		"from its newest checkpoint"
	if e.State == "" {
		e.State = fmt.Sprintf("has not answered within %s", long.Round(time.Second))
	} else {
		remedy = fmt.Sprintf("kill -CONT %d lets it go on; ", pid) + remedy
	}
	return &sdk.Error{Summary: "the engine of the run does not answer", Err: e, Remedy: remedy}
}

// answersAtAll asks the engine for its identity. Any answer will do.
func (c *Client) answersAtAll(ctx context.Context) error {
	began := time.Now()
	within, cancel := context.WithTimeout(ctx, silentAfter)
	defer cancel()
	if _, err := c.Identity(within); err != nil && within.Err() != nil {
		return silent(c.pid, time.Since(began))
	}
	return nil
}

// Leftover is a process of a block that runs.
type Leftover struct {
	Block string // name of its directory
	PID   int
}

// Leftovers are the processes of a run's blocks on this machine, by their directories: no record and no engine is
// needed to find them.
func Leftovers(ctx context.Context, dir state.Dir, host run.Host) (out []Leftover) {
	for _, d := range blockDirs(dir) {
		if pid, alive := host.Probe(ctx, d); alive {
			out = append(out, Leftover{filepath.Base(d), pid})
		}
	}
	return out
}

func blockDirs(dir state.Dir) []string {
	dirs, _ := filepath.Glob(filepath.Join(string(dir), "blocks", "*")) // the pattern is a valid one
	return dirs
}

// KillWithout ends a run whose engine is dead or does not answer: the engine, each block's process, by its mark, with
// everything that it has started, and each recorded job of a cluster. It returns what was alive. The record is only
// needed to write down that the run is stopped.
func KillWithout(ctx context.Context, dir state.Dir, host run.Host, command string) ([]Leftover, error) {
	if err := Belongs(ctx, dir, host); err != nil {
		return nil, err
	}
	held := killEngine(ctx, dir)
	var still *heldError
	if held != nil && !errors.As(held, &still) {
		return nil, held
	}
	left := Leftovers(ctx, dir, host)
	var errs []error
	for _, d := range blockDirs(dir) {
		if err := host.Sweep(ctx, d); err != nil {
			errs = append(errs, fmt.Errorf("end %s: %w", filepath.Base(d), err))
		}
	}
	errs = append(errs, remote.EndRelay(ctx, string(dir)), held)
	if held == nil {
		errs = append(errs, noteKilled(dir, command))
	}
	return left, errors.Join(errs...)
}

// heldError is an engine that was killed and is not gone.
type heldError struct{ pid int }

func (e *heldError) Error() string {
	return fmt.Sprintf("the engine (pid %d) was killed and is not gone after %s: it waits in the kernel, as for a dead "+
		"mount, and ends when the kernel returns; until then it does nothing", e.pid, killedWithin)
}

// killEngine kills the engine that holds a run. The process is the one that listens on the run's socket, as the kernel
// says, and not just the one that a file names.
func killEngine(ctx context.Context, dir state.Dir) error {
	owner := state.Holder(dir)
	if owner == nil {
		return nil
	}
	if !onThisMachine(*owner) {
		return fmt.Errorf("the engine of the run is pid %d on %s: end it there", owner.PID, owner.Host)
	}
	paths, err := socketPaths(dir)
	if err != nil {
		return err
	}
	conn, err := dialAny(ctx, paths)
	if err != nil {
		return fmt.Errorf("pid %d (%s) holds the run and listens on no socket of it: it starts or ends; kill -9 %d ends it, "+
			"and recipe stop --kill then ends its blocks: %w", owner.PID, owner.Command, owner.PID, err)
	}
	pid, err := peer.PID(conn)
	_ = conn.Close()
	if err != nil || pid != owner.PID {
		return fmt.Errorf("the lock of the run names pid %d, and pid %d listens on its socket: end the engine by kill -9, "+
			"then run recipe stop --kill again", owner.PID, pid)
	}
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
		return fmt.Errorf("kill the engine (pid %d): %w", pid, err)
	}
	within, cancel := context.WithTimeout(ctx, killedWithin)
	defer cancel()
	if letGo(within, dir) != nil {
		return &heldError{pid}
	}
	return nil
}

// noteKilled records that the run is stopped. The intents of blocks stay, and the next engine reads what the blocks
// have reported since this one stopped listening.
func noteKilled(dir state.Dir, command string) error {
	lock, err := state.TryLock(dir, command)
	if err != nil {
		return err
	}
	defer func() { _ = lock.Unlock() }()
	store, err := state.OpenStore(dir, nil)
	if err != nil {
		return fmt.Errorf("everything was ended, and that cannot be recorded: %w", err)
	}
	const why = "ended by recipe stop --kill, without its engine"
	store.Note(func(r *state.Run) {
		r.Status, r.Error, r.Ended = state.Stopped, why, time.Now().UTC().Truncate(time.Second)
	})
	events := []event.Event{}
	for a, b := range store.Run().Blocks {
		if !sdk.Phase(b.Phase).Over() {
			store.NoteBlock(a, func(b *state.Block) { b.Phase = string(sdk.Stopped) })
			events = append(events, event.Event{Type: event.Phase, Address: a.String(),
				Phase: string(sdk.Stopped), Message: why})
		}
	}
	events = append(events, event.Event{Type: event.RunEnded, Phase: string(state.Stopped), Message: why})
	err = errors.Join(store.Sync(), store.Close())
	if _, there := os.Stat(dir.Events()); there == nil {
		log, failed := event.Open(dir.Events())
		if failed == nil {
			for _, e := range events {
				_, appended := log.Append(e)
				failed = errors.Join(failed, appended)
			}
			failed = errors.Join(failed, log.Close())
		}
		err = errors.Join(err, failed)
	}
	return err
}

// Named lists processes for people.
func Named(list []Leftover) string {
	texts := make([]string, len(list))
	for i, l := range list {
		texts[i] = fmt.Sprintf("%s (pid %d)", l.Block, l.PID)
		if l.PID == 0 {
			texts[i] = l.Block + " (a job)"
		}
	}
	return strings.Join(texts, ", ")
}
