package gateway

import (
	"context"
	"fmt"
)

// contextLock is a lock that can be waited for with a deadline.
type contextLock chan struct{}

func (l contextLock) tryLock() bool {
	select {
	case l <- struct{}{}:
		return true
	default:
		return false
	}
}

func (l contextLock) lock(ctx context.Context) error {
	select {
	case l <- struct{}{}:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("gateway: waiting for another weight update or admission to end: %w", context.Cause(ctx))
	}
}

func (l contextLock) unlock() { <-l }

// bounded is ctx, ending also with the gateway and after Config.UpdateTimeout.
func (g *Gateway) bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithTimeout(ctx, g.cfg.UpdateTimeout)
	stop := context.AfterFunc(g.life, cancel)
	return ctx, func() { stop(); cancel() }
}
