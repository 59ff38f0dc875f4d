package gateway

import (
	"context"
	"fmt"
)

// turn is a lock that can be waited for with a deadline.
type turn chan struct{}

func (t turn) try() bool {
	select {
	case t <- struct{}{}:
		return true
	default:
		return false
	}
}

func (t turn) take(ctx context.Context) error {
	select {
	case t <- struct{}{}:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("gateway: waiting for another weight update or admission to end: %w", context.Cause(ctx))
	}
}

func (t turn) give() { <-t }

// bounded is ctx, ending also with the gateway and after Config.UpdateTimeout.
func (g *Gateway) bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithTimeout(ctx, g.cfg.UpdateTimeout)
	stop := context.AfterFunc(g.life, cancel)
	return ctx, func() { stop(); cancel() }
}
