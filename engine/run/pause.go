package run

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/recipe-rl/recipe/engine/event"
	"github.com/recipe-rl/recipe/engine/host"
	"github.com/recipe-rl/recipe/engine/run/lifecycle"
	"github.com/recipe-rl/recipe/engine/state"
	"github.com/recipe-rl/recipe/engine/why"
	"github.com/recipe-rl/recipe/sdk"
	"github.com/recipe-rl/recipe/sdk/kind"
)

// pauseWithin bounds one call of a block to pause it: a trainer answers between two steps.
const pauseWithin = 30 * time.Minute

// pauses is whether the run is paused.
type pauses struct {
	since   time.Time // zero: it is not
	resumed time.Time // when it last was resumed
}

func (p pauses) paused() bool { return !p.since.IsZero() }

// Pause makes inference hold requests and trainers wait before their next step, or lets both go on. It returns when the
// steps in progress have ended. A pause that fails, or whose context ends, is undone.
func (e *Engine) Pause(ctx context.Context, paused bool) error {
	err := e.pause(ctx, paused)
	if err != nil && paused && !errors.Is(err, ErrOver) {
		err = errors.Join(err, e.pause(context.WithoutCancel(ctx), false))
	}
	return err
}

func (e *Engine) pause(ctx context.Context, paused bool) error {
	var told []*attempt
	err := e.ask(ctx, func(s *supervisor) error {
		if s.ending != nil {
			return ErrOver
		}
		if paused {
			if err := s.mayPause(); err != nil {
				return err
			}
		}
		if paused != s.pauses.paused() {
			s.setPaused(paused)
		}
		told = s.pausesToSend()
		return nil
	})
	if err != nil {
		return err
	}
	errs := make([]error, len(told))
	var wg sync.WaitGroup
	for i, at := range told {
		wg.Go(func() { errs[i] = e.sendPause(ctx, at, paused) })
	}
	wg.Wait()
	return errors.Join(errs...)
}

// mayPause explains why this run cannot be paused.
func (s *supervisor) mayPause() error {
	for _, b := range s.sorted() {
		if b.addr().Kind != kind.Inference {
			continue
		}
		if b.Stage == lifecycle.Checked {
			return fmt.Errorf("%s is external: its requests do not pass through this run, which therefore cannot be paused; "+
				"recipe stop stops it at a checkpoint", b.addr())
		}
	}
	return nil
}

func (s *supervisor) setPaused(paused bool) {
	now := s.e.now()
	ev := event.Event{Type: event.Paused}
	if paused {
		s.pauses.since = now
	} else {
		ev = event.Event{Type: event.Resumed, Seconds: now.Sub(s.pauses.since).Seconds()}
		s.pauses = pauses{resumed: now}
	}
	since := s.pauses.since
	s.e.noteRun(func(r *state.Run) { r.Paused = since })
	s.e.append(ev)
}

// takePause takes over the pause of an engine that was killed; a run that had ended is not paused any more.
func (s *supervisor) takePause() {
	if rec := s.e.store.Run(); rec.Status == state.Running {
		s.pauses.since = rec.Paused
	}
}

// pausesToSend are the attempts that have not been told yet whether the run is paused. They count as told from now on.
func (s *supervisor) pausesToSend() (out []*attempt) {
	for _, b := range s.sorted() {
		k := b.addr().Kind
		if k != kind.Inference && k != kind.Trainer || !b.HasProcess() || b.attempt.proc.Load() == nil ||
			b.Phase != sdk.Ready && b.Phase != sdk.Degraded || b.attempt.paused == s.pauses.paused() {
			continue
		}
		b.attempt.paused = s.pauses.paused()
		out = append(out, b.attempt)
	}
	return out
}

// sendPauses tells blocks that came up, or were adopted, while the run is paused.
func (s *supervisor) sendPauses() {
	paused := s.pauses.paused()
	for _, at := range s.pausesToSend() {
		go func() {
			if err := s.e.sendPause(s.ctx, at, paused); err != nil && s.ctx.Err() == nil {
				s.e.notice("warn", err.Error())
			}
		}()
	}
}

// sendPause tells one block. A trainer that cannot be paused waits for a batch; a block that cannot be, need not be
// told to go on.
func (e *Engine) sendPause(ctx context.Context, at *attempt, paused bool) error {
	ctx, cancel := context.WithTimeout(ctx, pauseWithin)
	defer cancel()
	err := (*at.proc.Load()).Pause(ctx, paused)
	if err == nil || errors.Is(err, host.ErrUnsupported) && (at.block.Kind == kind.Trainer || !paused) {
		return nil
	}
	e.do(func(*supervisor) { at.paused = !paused }) // it is told again
	return fmt.Errorf("%s: %w", at.block, errors.New(e.scrub(err.Error())))
}

// explain says who waits for whom. Nothing stalls in a paused run, or while the engine does not run; after it time
// counts from its end.
func (s *supervisor) explain(now time.Time, after time.Duration) *why.Report {
	report := why.Explain(s.snapshot(now, after))
	var stalls []why.Stall
	from := s.waitsCountFrom()
	for _, stall := range report.Stalls {
		stall.Idle = min(stall.Idle, now.Sub(from))
		if !s.pauses.paused() && (from.IsZero() || stall.Idle >= after) {
			stalls = append(stalls, stall)
		}
	}
	report.Stalls = stalls
	return report
}
