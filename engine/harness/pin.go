package harness

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"time"

	"github.com/recipe-rl/recipe/internal/gateway"
	"github.com/recipe-rl/recipe/sdk"
)

const (
	lease = 45 * time.Second // by which weight updates wait
	renew = 10 * time.Second
	// a sync block that has seen no lease begins its update within begin, and ends it within settle
	begin  = 2 * time.Second
	settle = 10 * time.Minute
)

// Pin has the weight updates of a live run wait. nil: the policy does not change.
type Pin struct {
	gateway *gateway.Client
	id      string
	version int
	renewed time.Time // last
}

// NewPin asks the gateway at a URL that weight updates wait, and waits itself for one that had begun before. Close it.
func NewPin(ctx context.Context, url, token string) (*Pin, error) {
	p := &Pin{gateway: gateway.NewClient(url, token), id: "harness." + rand.Text()}
	ctx, cancel := context.WithTimeoutCause(ctx, settle, fmt.Errorf("a weight update has not ended after %s", settle))
	defer cancel()
	if err := p.settled(ctx); err != nil {
		p.Close()
		return nil, errors.Join(context.Cause(ctx), err)
	}
	return p, nil
}

func (p *Pin) settled(ctx context.Context) error {
	for held := true; held; {
		if _, err := p.keep(ctx, lease); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(begin):
		}
		status, err := p.gateway.Status(ctx)
		if err != nil {
			return err
		}
		held = status.Held
	}
	kept, err := p.keep(ctx, lease)
	p.version = kept.Version
	return err
}

func (p *Pin) keep(ctx context.Context, lease time.Duration) (gateway.Kept, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	kept, err := p.gateway.Keep(ctx, p.id, lease, nil)
	if err == nil {
		p.renewed = time.Now()
	}
	return kept, err
}

// Version is the policy version that is kept.
func (p *Pin) Version() int { return p.version }

// check renews the lease. The version must be the same; no answer is no error until the lease has ended, unless the
// answer is the last one.
func (p *Pin) check(ctx context.Context, last bool) error {
	if p == nil {
		return nil
	}
	kept, err := p.keep(ctx, lease)
	switch {
	case err != nil && !last && time.Since(p.renewed) < lease:
		return nil
	case err != nil:
		return fmt.Errorf("keep the policy version: %w", err)
	case kept.Version != p.version:
		return &sdk.Error{Summary: fmt.Sprintf("the policy of the live run changed from version %d to %d", p.version,
			kept.Version), Detail: "Weight updates wait for an evaluation no longer than half the timeout of the sync block.",
			Remedy: "stop the run (recipe stop), then the same command evaluates its newest checkpoint; or evaluate less " +
				"(--limit N)"}
	}
	return nil
}

// Close ends the lease.
func (p *Pin) Close() {
	if p == nil {
		return
	}
	_, _ = p.keep(context.Background(), 0) // it ends by itself
	p.gateway.Close()
}
