package gateway

import (
	"context"
	"errors"
	"fmt"
)

// ErrUp says that weights have to be loaded: a replica is up, or the inference plugin cannot just take note of them.
var ErrUp = errors.New("it is not down")

// Adopt takes note of weights that others serve, at once, while no replica of this gateway is up: those that come up
// from now on serve them, and are admitted as after an update. It is refused with ErrUp unless Status.Down is set.
func (g *Gateway) Adopt(ctx context.Context, u WeightUpdate) error {
	if c := u.Check; c != nil && c.Later != "" {
		return fmt.Errorf("%w: later is %q; want the log-probabilities of a check", errBody, c.Later)
	}
	if err := g.checkUpdate(&u); err != nil {
		return err
	}
	ctx, cancel := g.bounded(ctx)
	defer cancel()
	g.adopting.Add(1)
	defer g.adopting.Add(-1)
	g.overtakeAdmission()
	if err := g.begin(ctx); err != nil {
		return err
	}
	err := g.adopt(u)
	g.updating.unlock()
	g.afterUpdate()
	return err
}

// adopt is Adopt with g.updating held: no replica is admitted meanwhile.
func (g *Gateway) adopt(u WeightUpdate) error {
	err := ErrUp
	if g.down() {
		err = g.cfg.Adopt(u.Weights)
	}
	if err != nil {
		return fmt.Errorf("gateway: take note of policy version %d: %w", u.Version, err)
	}
	u.Hold, u.Rollback = "", false
	g.mu.Lock()
	g.version, g.last = u.version(), &u
	g.changedLocked()
	g.mu.Unlock()
	g.emit(Event{Kind: EventVersionChanged, Version: u.version(), Message: fmt.Sprintf(
		"no replica is up: those that come up will serve policy version %d", u.Version)})
	return nil
}

// errOvertaken ends an admission that waits for a replica to come up, while weights came that it shall come up with.
var errOvertaken = errors.New("gateway: no replica is up, and other weights came that they will come up with")

// overtakable is the context of an admission, which holds g.updating. Calls of Adopt would wait for it until a replica
// is up, with weights whose files may be gone by then.
func (g *Gateway) overtakable(ctx context.Context) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	g.mu.Lock()
	g.overtake = func() { cancel(errOvertaken) }
	g.mu.Unlock()
	if g.adopting.Load() > 0 { // it came before there was anything to overtake
		g.overtakeAdmission()
	}
	return ctx, func() {
		g.mu.Lock()
		g.overtake = nil
		g.mu.Unlock()
		cancel(nil)
	}
}

func (g *Gateway) overtakeAdmission() {
	if !g.down() {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.overtake != nil {
		g.overtake()
	}
}

func (g *Gateway) down() bool { return g.cfg.Adopt != nil && g.cfg.Down != nil && g.cfg.Down() }
