package gateway

import (
	"context"
	"errors"
	"fmt"
)

// ErrNoSleep reports that the engines behind the gateway cannot release their memory.
var ErrNoSleep = errors.New("gateway: the engine cannot sleep")

// Sleep makes the engines release the memory of their GPU while another program uses it. The caller must hold the
// gateway (hold is the ID): an engine that sleeps must get no requests. They wake when that hold ends, by Resume or by
// its lease, or when a weight update under it succeeds. Level is Config.Sleep's. An error says that not all sleep;
// those that do are woken with the hold.
func (g *Gateway) Sleep(ctx context.Context, hold string, level int) error {
	if g.cfg.Sleep == nil {
		return fmt.Errorf("%w: its plugin does not support it", ErrNoSleep)
	}
	ctx, cancel := g.bounded(ctx)
	defer cancel()
	if err := g.updating.lock(ctx); err != nil {
		return err
	}
	err := g.sleep(ctx, hold, level)
	g.updating.unlock()
	g.afterUpdate()
	return err
}

// sleep is Sleep with g.updating held.
func (g *Gateway) sleep(ctx context.Context, hold string, level int) error {
	if _, err := g.owns(hold); err != nil {
		return err
	}
	started := g.cfg.Clock.Now()
	g.noteBefore(ctx)
	g.setAsleep(level) // set before the engines are asked: an engine whose answer is lost must be woken, too
	if err := g.cfg.Sleep(ctx, level); err != nil {
		if errors.Is(err, ErrNoSleep) {
			g.setAsleep(0)
		}
		return fmt.Errorf("gateway: putting the engine to sleep: %w", err)
	}
	g.emit(Event{Kind: EventAsleep, Hold: hold, Version: g.Version(), Duration: g.cfg.Clock.Now().Sub(started),
		Message: fmt.Sprintf("the engine sleeps (level %d)", level)})
	return nil
}

func (g *Gateway) setAsleep(level int) {
	g.mu.Lock()
	g.asleep = level
	g.changedLocked()
	g.mu.Unlock()
}

func (g *Gateway) sleeps() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.asleep > 0
}

// wakeAll wakes engines that sleep before their hold ends. It does not use the caller's context: the hold must end even
// if the caller has gone.
func (g *Gateway) wakeAll(id string) error {
	ctx, cancel := g.bounded(g.life)
	defer cancel()
	if err := g.updating.lock(ctx); err != nil {
		return err
	}
	defer g.updating.unlock()
	if !g.sleeps() {
		return nil
	}
	g.mu.Lock()
	ours := g.hold != nil && (id == "" || id == g.hold.ID)
	g.mu.Unlock()
	if !ours {
		return fmt.Errorf("%w by %q", ErrNotHeld, id)
	}
	g.recover()
	return nil
}
