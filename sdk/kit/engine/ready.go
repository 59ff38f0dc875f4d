package engine

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/recipe-rl/recipe/sdk"
	"github.com/recipe-rl/recipe/sdk/inference"
	"github.com/recipe-rl/recipe/sdk/proc"
	"github.com/recipe-rl/recipe/sdk/transport"
)

const (
	answerTimeout = 2 * time.Minute        // of one attempt at a first token, which compiles kernels on some machines
	logTail       = 400                    // lines of the log that are searched for a known failure
	pollEvery     = 250 * time.Millisecond // polling interval of what sends no notification
)

// awaitReady waits until the server has produced a token. One that ends is explained from its log.
func (r *replica) awaitReady(ctx context.Context, program *proc.Program, c Client) error {
	limit := r.s.limit().Start // of the health block; without an engine there is none
	if limit > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, limit)
		defer cancel()
	}
	for {
		attempt, cancel := context.WithTimeout(ctx, answerTimeout)
		last := c.Ready(attempt)
		cancel()
		if last == nil {
			return nil
		}
		select {
		case <-program.Done():
			return r.s.explain(program, false)
		case <-ctx.Done():
			if errors.Is(ctx.Err(), context.DeadlineExceeded) {
				return &sdk.Error{
					Summary: fmt.Sprintf("%s did not answer within start_timeout = %s", r.s.spec.Title, limit),
					Detail:  lastLines(program.Tail(logTail), 10), Err: last,
					Remedy: "a large model that is downloaded or compiled for the first time needs longer: " +
						"raise health { start_timeout }; otherwise see the end of its log above",
				}
			}
			return ctx.Err()
		case <-time.After(pollEvery):
		}
	}
}

// install loads the current weights into a server that answers and makes it a live replica. No update can come in
// between.
func (r *replica) install(ctx context.Context, c Client, adopted bool) error {
	s := r.s
	ctx, cancel := context.WithTimeout(ctx, s.limit().Update)
	defer cancel()
	facts, err := c.Probe(ctx)
	if err != nil {
		return fmt.Errorf("ask %s what it offers: %w", s.spec.Title, err)
	}
	s.updating.Lock()
	defer s.updating.Unlock()
	s.mu.Lock()
	current := s.current
	r.facts = facts
	s.mu.Unlock()

	if p, ok := c.(Preparer); ok {
		if err := p.Prepare(ctx); err != nil {
			return err
		}
	}
	// A server that was adopted may serve any version by now, so it gets the current one again.
	if current.Path != "" && (adopted || !s.startsWith(current)) {
		if err := (target{r, c, facts}).loadFiles(ctx, current, false); err != nil {
			return fmt.Errorf("load policy version %d into the restarted server: %w", current.Version, err)
		}
	}
	if err := c.Answer(ctx); err != nil {
		return fmt.Errorf("the server fails with the weights of version %d: %w", current.Version, err)
	}
	s.mu.Lock()
	r.live, r.version = true, current.Version
	serves := fmt.Sprintf("policy version %d", current.Version)
	if !s.loadableLocked() {
		r.version = inference.UnknownVersion
		serves = fmt.Sprintf("waits for policy version %d, which is in no file", current.Version)
	}
	s.mu.Unlock()
	s.host.Log("info", fmt.Sprintf("replica %s: %s %s answers, %s, weights by %s",
		r.id, s.spec.Title, facts.Version, serves, strings.Join(transport.Texts(facts.Transports), ", ")))
	return nil
}

// watch returns when the server has ended, hangs, or has to be started again.
func (r *replica) watch(ctx context.Context, program *proc.Program, c Client) error {
	ticker := time.NewTicker(healthEvery)
	defer ticker.Stop()
	misses := 0
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-program.Done():
			return r.s.explain(program, true)
		case <-r.restart:
			return errAsked
		case <-ticker.C:
		}
		look, cancel := context.WithTimeout(ctx, healthTimeout)
		err := c.Healthy(look)
		cancel()
		if err == nil || ctx.Err() != nil {
			misses = 0
			continue
		}
		misses++
		var status *StatusError
		if errors.As(err, &status) || misses >= healthMisses {
			return fmt.Errorf("%s is up but not healthy (%d failed checks in a row): %w", r.s.spec.Title, misses, err)
		}
	}
}

func (s *Supervisor) explain(program *proc.Program, later bool) error {
	return s.spec.Diagnosis.Explain(program.Err(), program.Tail(logTail), later)
}

func (r *replica) isLive() bool {
	r.s.mu.Lock()
	defer r.s.mu.Unlock()
	return r.live
}

func (r *replica) setVersion(version int64) {
	r.s.mu.Lock()
	r.version = version
	r.s.mu.Unlock()
}
