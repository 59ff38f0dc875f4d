package sync

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"time"

	"github.com/recipe-rl/recipe/internal/gateway"
)

// proof is what the trainer's weights make of the fixed text. It is computed while inference is held and loads them,
// and compared before they are served.
type proof struct {
	id   string
	done chan struct{} // closed when what follows is set; that is so soon after the end of its context

	logprobs []float64 // of every token; the first is 0
	err      error
	seconds  float64

	over  chan struct{} // closed when taken is set
	taken float64       // seconds from the start of the update until the trainer went on; 0: it waits for the end
}

// prove asks the trainer for it, as long as it is wanted. Where trainer and inference take turns it waits: the trainer
// needs memory for it, which inference takes back while it wakes. The trainer may go on afterwards, if it can. Once it
// is told so its answer is awaited, also where inference has loaded meanwhile: whether it went on is known then.
func (s *syncer) prove(ctx, wanted context.Context, u *update) *proof {
	p := &proof{id: rand.Text(), done: make(chan struct{}), over: make(chan struct{})}
	go func() {
		defer close(p.over)
		s.logprobs(wanted, u, p)
		close(p.done)
		if p.err == nil && wanted.Err() == nil && s.letGoAhead(ctx, u) {
			p.taken = time.Since(u.started).Seconds()
		}
	}()
	if s.colocated {
		_ = p.wait(wanted)
	}
	return p
}

// logprobs asks for the log-probabilities of the fixed text.
func (s *syncer) logprobs(ctx context.Context, u *update, p *proof) {
	begun := time.Now()
	found, err := s.trainer.Logprobs(ctx, u.check.Tokens)
	p.seconds = time.Since(begun).Seconds()
	if err != nil {
		p.err = fmt.Errorf("ask for the trainer's log-probabilities of the fixed text: %w", err)
		return
	}
	p.logprobs = append([]float64{0}, found...)
}

// wait waits for it, and returns why there is none.
func (p *proof) wait(ctx context.Context) error {
	select {
	case <-p.done:
		return p.err
	case <-ctx.Done():
		return fmt.Errorf("wait for the trainer's log-probabilities of the fixed text: %w", ctx.Err())
	}
}

// known reports whether it need not be waited for.
func (p *proof) known() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// failed is why there is none; nil where there is one, or may be.
func (p *proof) failed() error {
	if !p.known() {
		return nil
	}
	return p.err
}

// updateGateway has one gateway load the weights, and compare them with the proof as soon as both are there.
func (s *syncer) updateGateway(ctx context.Context, v *server, u *update) (gateway.UpdateResult, error) {
	check := *u.check
	later := v.expects && !u.proof.known()
	if later {
		check.Later = u.proof.id
	} else {
		if err := u.proof.wait(ctx); err != nil {
			return gateway.UpdateResult{}, err
		}
		check.Logprobs = u.proof.logprobs
	}
	u.mu.Lock()
	request := (&published{Weights: u.weights, Check: &check, Step: &u.Step}).request(u.holds[v])
	u.touched = true
	u.mu.Unlock()
	request.Mode = s.mode()
	if !later {
		return v.client.UpdateWeights(ctx, request)
	}
	sent := make(chan error, 1)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		e := gateway.Expectation{ID: u.proof.id}
		if err := u.proof.wait(ctx); err != nil {
			e.Error = err.Error()
		} else {
			e.Logprobs = u.proof.logprobs
		}
		err := v.client.Expect(ctx, e)
		if err != nil {
			cancel() // the update would wait for it until its deadline
		}
		sent <- err
	}()
	result, err := v.client.UpdateWeights(ctx, request)
	if err != nil {
		cancel()
	}
	if unsent := <-sent; unsent != nil && err != nil && !errors.Is(unsent, context.Canceled) {
		err = fmt.Errorf("send the trainer's log-probabilities: %w", errors.Join(unsent, err))
	}
	return result, err
}
