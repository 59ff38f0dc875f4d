package sdk

import (
	"context"
	"fmt"
	"time"
)

// turn is where a trainer stands that shares its GPU with inference, guarded by gate.mu.
type turn struct {
	wanted bool
	has    bool
	step   int64
	failed string // why it cannot be had
}

// shared says whether inference and the trainer take turns on the GPU.
func (g *gate) shared() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.sharedLocked()
}

func (g *gate) sharedLocked() bool { return g.attached != nil && g.attached.Colocated }

// take is TrainerHost.Turn: it returns when the sync block has put inference to sleep.
func (g *gate) take(ctx context.Context, step int64) error {
	g.mu.Lock()
	lone := len(g.syncedBy) == 0 && g.attached == nil
	g.mu.Unlock()
	if lone {
		return nil
	}
	if err := g.waitAttached(ctx); err != nil {
		return err
	}
	g.mu.Lock()
	if !g.sharedLocked() || g.turn.has {
		g.mu.Unlock()
		return nil
	}
	g.turn = turn{wanted: true, step: step}
	g.heard = time.Now()
	g.changedLocked()
	g.mu.Unlock()
	return g.waitTurn(ctx)
}

func (g *gate) waitTurn(ctx context.Context) error {
	tick := time.NewTicker(max(g.silence/20, time.Millisecond))
	defer tick.Stop()
	for {
		g.mu.Lock()
		t, changed, by, shared := g.turn, g.changed, g.attached.Address, g.sharedLocked()
		silent := time.Since(g.heard)
		g.mu.Unlock()
		switch {
		case t.has:
			return nil
		case !shared: // another sync block, or the same with another configuration
			g.giveUp()
			return nil
		case t.failed != "":
			g.giveUp()
			return &Error{
				Summary: fmt.Sprintf("%s could not give %s the GPU for step %d", by, g.address, t.step),
				Detail:  t.failed,
				Remedy:  "read the log of " + by + " and of the inference blocks it names; colocated = \"share\" in " + by + " trains beside a server that stays awake",
			}
		case silent > g.silence:
			g.giveUp()
			return &Error{
				Summary: fmt.Sprintf("%s has been silent for %s while %s waits for its turn on the GPU", by, silent.Round(time.Second), g.address),
				Remedy:  "read the log of " + by + "; the trainer continues from its last checkpoint when it is started again",
			}
		}
		select {
		case <-changed:
		case <-tick.C:
		case <-ctx.Done():
			g.giveUp()
			return ctx.Err()
		}
	}
}

// giveUp takes the wish back.
func (g *gate) giveUp() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.turn = turn{}
	g.changedLocked()
}

// give is the sync block's answer to a turn that is wanted.
func (g *gate) give(t TurnGiven) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.heard = time.Now()
	if g.turn.has && g.turn.step == t.Step && t.Error == "" {
		return nil // told twice: the answer to the first was lost
	}
	if !g.turn.wanted || g.turn.step != t.Step {
		return fmt.Errorf("%s does not wait for a turn for step %d", g.address, t.Step)
	}
	g.turn.wanted, g.turn.has, g.turn.failed = false, t.Error == "", t.Error
	g.changedLocked()
	return nil
}

// rest offers the end of a turn that brought no new weights; false when there is none to end.
func (g *gate) rest(step int64) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.turn.has || !g.sharedLocked() {
		g.turn = turn{}
		return false
	}
	g.pending = &Publication{Kind: TurnOver, Version: g.version, Step: step}
	g.outcome = nil
	g.heard = time.Now()
	g.changedLocked()
	return true
}

// wantedLocked is what the sync block is to do for the trainer now; nil: nothing.
func (g *gate) wantedLocked(after int64) *Publication {
	switch {
	case g.turn.wanted:
		return &Publication{Kind: TurnWanted, Version: g.version, Step: g.turn.step}
	case g.pending != nil && g.outcome == nil && (g.pending.Kind != WeightsReady || g.pending.Version > after):
		copied := *g.pending
		return &copied
	}
	return nil
}
