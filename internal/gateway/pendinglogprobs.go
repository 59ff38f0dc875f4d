package gateway

import (
	"context"
	"errors"
	"fmt"
	"sync"
)

// pendingLogprobs are the trainer's half of a check, which comes while the weights are being loaded, or before.
type pendingLogprobs struct {
	id       string
	kept     chan struct{} // closed when one of those below is set
	once     sync.Once
	logprobs []float64
	broken   error
}

// pendingFor returns those of that ID. Whichever comes first, the update or what it waits for, makes it. There is
// one at a time, as there is one sync block: a new one takes the place of one that nobody has waited for.
func (g *Gateway) pendingFor(id string) *pendingLogprobs {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.pending == nil || g.pending.id != id {
		g.pending = &pendingLogprobs{id: id, kept: make(chan struct{})}
	}
	return g.pending
}

func (g *Gateway) forget(p *pendingLogprobs) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.pending == p {
		g.pending = nil
	}
}

// Expectation is what a check compares a replica with, for an update whose Check.Later is ID.
type Expectation struct {
	ID string `json:"id"`
	// the trainer's log-probability of each token of the check given those before it; the first is not compared
	Logprobs []float64 `json:"logprobs,omitempty"`
	Error    string    `json:"error,omitempty"` // why there are none: the update fails
}

// Expect brings the log-probabilities that an update waits for, or will wait for. It does not wait for the update.
func (g *Gateway) Expect(e Expectation) error {
	if e.ID == "" || (e.Error == "") == (len(e.Logprobs) == 0) {
		return errors.New("gateway: expect: want an id, and either log-probabilities or an error")
	}
	p := g.pendingFor(e.ID)
	p.once.Do(func() {
		p.logprobs = e.Logprobs
		if e.Error != "" {
			p.broken = errors.New(e.Error)
		}
		close(p.kept)
	})
	return nil
}

// expected are the trainer's log-probabilities; it waits for those that are promised.
func (c *Check) expected(ctx context.Context) ([]float64, error) {
	p := c.pending
	if p == nil {
		return c.Logprobs, nil
	}
	select {
	case <-p.kept:
	case <-ctx.Done():
		return nil, fmt.Errorf("the trainer's log-probabilities of the fixed text have not come: %w", ctx.Err())
	}
	if p.broken != nil {
		return nil, fmt.Errorf("the trainer's log-probabilities of the fixed text: %w", p.broken)
	}
	if len(p.logprobs) != len(c.Tokens) {
		return nil, fmt.Errorf("the trainer's log-probabilities of the fixed text: got %d for %d tokens", len(p.logprobs),
			len(c.Tokens))
	}
	return p.logprobs, nil
}

// settled is the check with what was promised, for later: a replica that comes back is compared with the same.
func (c *Check) settled() *Check {
	if c == nil || c.pending == nil {
		return c
	}
	return &Check{Tokens: c.Tokens, Logprobs: c.pending.logprobs, Tolerance: c.Tolerance}
}
