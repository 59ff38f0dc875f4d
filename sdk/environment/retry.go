package environment

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/recipe-rl/recipe/internal/bounded"
)

// draw samples, again and again while the inference block is away: a failure of the server must never become a low
// score.
func (r *rollouts) draw(ctx context.Context, q question, p sampling) (*sample, error) {
	for wait := retryFirst; ; wait = min(2*wait, retryLast) {
		drawn, err := r.sampler.draw(ctx, q, p)
		var no *refusal
		if err == nil || errors.As(err, &no) || errors.Is(err, bounded.ErrTooLarge) || ctx.Err() != nil {
			return drawn, err
		}
		r.stats.failed()
		if wait > time.Second {
			r.host.Log("warn", fmt.Sprintf("%s: %v; trying again in %s", r.settings.Inference.Address, err, wait))
		}
		if err := pause(ctx, wait); err != nil {
			return nil, err
		}
	}
}

func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
