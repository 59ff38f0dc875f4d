package run

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/recipe-rl/recipe/engine/event"
	"github.com/recipe-rl/recipe/engine/remote"
	"github.com/recipe-rl/recipe/engine/state"
	"github.com/recipe-rl/recipe/internal/disk"
	"github.com/recipe-rl/recipe/schema/addr"
)

func engineRecord(e *Engine) state.Engine {
	host, _ := os.Hostname()
	return state.Engine{PID: os.Getpid(), Host: host, Detached: e.opts.Lease == 0}
}

// close records the end of the run and returns its outputs: every one, also sensitive ones, for the caller's eyes only.
func (s *supervisor) close() (map[string]any, error) {
	if s.e.jobs != nil {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		run := absolute(string(s.e.opts.Dir))
		err := remote.EndRelay(ctx, run)
		if host, ok := s.e.opts.Host.(placer); ok {
			err = errors.Join(err, host.EndWaiting(ctx, run))
		}
		if err != nil {
			s.e.notice("error", err.Error())
		}
	}
	end := s.ending
	visible, err := s.finalOutputs()
	if err != nil && end.status == state.Completed {
		end.err, end.status = err, state.Failed
	}
	if end.err == nil && end.status == state.Stopped && len(end.unclean) > 0 {
		end.err = &UncleanError{Blocks: end.unclean}
	}
	msg := ""
	if end.err != nil {
		msg = s.e.scrub(end.err.Error())
	}
	s.e.noteRun(func(r *state.Run) {
		r.Status, r.Error, r.Ended, r.Engine = end.status, msg, s.e.now().UTC(), state.Engine{}
	})
	if msg == "" {
		msg = end.why
	}
	s.e.append(event.Event{Type: event.RunEnded, Phase: string(end.status), Message: msg})
	if err := s.written(); err != nil && end.err == nil {
		end.err = err
	}
	s.e.store.Fold() // now, while the engine still answers, and not between its last answer and the end of its lock
	return visible, end.err
}

// UncleanError says that a run was stopped, and that something of it was not stopped in order. What was saved before is
// there.
type UncleanError struct{ Blocks []*Failure }

func (e *UncleanError) Error() string {
	lines := make([]string, len(e.Blocks))
	for i, f := range e.Blocks {
		lines[i] = fmt.Sprintf("%s: %v", f.Address, f.Err)
	}
	return "some blocks did not stop cleanly: " + strings.Join(lines, "; ")
}

// written returns when the end of the run is on the disk. While there is no room it waits and answers orders, unless
// the run is killed.
func (s *supervisor) written() error {
	for {
		err := s.e.store.Sync()
		if err == nil {
			if ferr := s.e.log.Flush(); disk.Full(ferr) { // any other loss of events has been said
				err = ferr
			}
		}
		if !disk.Full(err) || s.killed {
			return err
		}
		select {
		case fn := <-s.e.orders:
			fn(s)
		case fn := <-s.e.inbox:
			fn(s)
		case <-time.After(disk.RetryEvery):
		case <-s.canceled:
			s.kill()
		}
	}
}

// updated is the answer of a block to changed values.
func (s *supervisor) updated(a addr.Block, config map[string]json.RawMessage, err error) {
	if err != nil {
		s.e.notice("error", fmt.Sprintf(
			"%s did not apply the change: %v. It continues with its old values; `recipe restart %s` restarts it "+
				"with the new ones", a, err, a))
		return
	}
	s.e.note(a, func(rec *state.Block) { rec.Config = config })
	s.e.notice("info", fmt.Sprintf("%s has applied the change", a))
}
