package attempt

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/recipe-rl/recipe/internal/event"
	"github.com/recipe-rl/recipe/internal/wire"
	"github.com/recipe-rl/recipe/sdk"
)

// handOver is how long Prepare may take to return once the block has been started.
const handOver = time.Minute

// stage is what a block that is prepared waits for.
type stage struct {
	starts  chan wire.Start // takes one
	begun   bool            // it was started
	settled chan struct{}   // closed by Settle
}

// ErrStarted reports that this process runs a block already.
var ErrStarted = errors.New("this process runs")

// StartPrepared hands the start to a block that was prepared.
func (a *Attempt) StartPrepared(start wire.Start) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	switch {
	case a.stage == nil || a.stage.begun:
		return fmt.Errorf("%w %s already; start a new process for another attempt", ErrStarted, a.start.Address)
	case a.phase.Over():
		return fmt.Errorf("%s is %s already: %s", a.start.Address, a.phase, a.failure)
	}
	a.stage.begun = true
	a.blanker.Store(newBlanker(secretsOf(start)))
	a.events.Hide(secretsOf(start))
	a.version = max(a.version, start.Policy.Version)
	a.setPhaseLocked(event.PhaseChange{Phase: sdk.Starting})
	a.stage.starts <- start
	return nil
}

// Settle tells a block that is prepared that nobody decides by the free memory of its accelerators any more. False: it
// does not wait for that.
func (a *Attempt) Settle() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.stage == nil || a.stage.begun || !a.start.SharesDevices {
		return false
	}
	select {
	case <-a.stage.settled:
		return false
	default:
		close(a.stage.settled)
		return true
	}
}

// prepared prepares the block and waits until it is started, with what it returns.
func (a *Attempt) prepared(ctx context.Context, h *host) (wire.Start, error) {
	started, returned := make(chan struct{}), make(chan error, 1)
	go func() {
		returned <- a.guarded(func() error { return a.plugin.Prepare(ctx, a.start, h, started, a.stage.settled) })
	}()
	select {
	case err := <-returned:
		if err != nil {
			return wire.Start{}, err
		}
		h.Phase(sdk.Prepared, "")
		select {
		case start := <-a.stage.starts:
			return start, nil
		case <-ctx.Done():
			return wire.Start{}, context.Cause(ctx)
		}
	case start := <-a.stage.starts:
		close(started)
		select {
		case err := <-returned:
			return start, err
		case <-time.After(handOver):
			return start, &sdk.Error{
				Summary: fmt.Sprintf("the plugin was still preparing %s after the block was started", handOver),
				Remedy:  "report this to the plugin's author: Prepare returns soon after started is closed",
			}
		}
	case <-ctx.Done():
		return wire.Start{}, errors.Join(<-returned, context.Cause(ctx))
	}
}

// Preparing reports whether the block has not been started yet.
func (a *Attempt) Preparing() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.stage != nil && !a.stage.begun
}

// stagePhase is a phase that the plugin reports, as the stage has it: code that both stages share need not know which
// it is in.
func (a *Attempt) stagePhase(phase sdk.Phase) sdk.Phase {
	switch preparing := a.Preparing(); {
	case preparing && (phase == sdk.Starting || phase == sdk.Loading):
		return sdk.Preparing
	case !preparing && (phase == sdk.Preparing || phase == sdk.Prepared):
		return sdk.Loading
	}
	return phase
}
