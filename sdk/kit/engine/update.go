package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/recipe-rl/recipe/internal/gateway"
	"github.com/recipe-rl/recipe/sdk"
	"github.com/recipe-rl/recipe/sdk/inference"
	"github.com/recipe-rl/recipe/sdk/transport"
)

// Load loads published weights into every replica. A replica that is being restarted comes up with them, and so does
// one that fails to load them while another one succeeds: the update ends without it, and the error is
// gateway.ReplicaErrors, which names every replica when none loaded the weights.
func (s *Supervisor) Load(ctx context.Context, w sdk.Weights) error {
	limit := s.limit().Update
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("update_timeout of %s is over", limit))
	defer cancel()
	s.setAsleep(false)
	if w.Transport == "restart" {
		if _, err := s.awaitLive(ctx); err != nil {
			return err
		}
		return s.restartWith(ctx, w)
	}
	if err := s.spec.accepts(w); err != nil {
		return err
	}
	live, err := s.lockLive(ctx)
	if err != nil {
		return err
	}
	defer s.updating.Unlock()
	errs := make([]error, len(live))
	var group sync.WaitGroup
	for i, t := range live {
		group.Go(func() { errs[i] = t.update(ctx, w) })
	}
	group.Wait()
	return s.settle(ctx, live, errs, w)
}

// Down implements inference.Adopter.
func (s *Supervisor) Down() bool { return len(s.live()) == 0 }

// Adopt implements inference.Adopter: a server that is being installed with the weights of before has their version.
func (s *Supervisor) Adopt(w sdk.Weights) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.current = w
}

// settle decides the result of an update, and what happens to replicas that failed to load it.
func (s *Supervisor) settle(ctx context.Context, live []target, errs []error, w sdk.Weights) error {
	loaded := slices.Contains(errs, nil)
	if loaded {
		s.mu.Lock()
		s.current = w // from now on a server that starts comes up with it
		s.mu.Unlock()
	}
	failed := gateway.ReplicaErrors{}
	for i, err := range errs {
		if r := live[i].replica; err != nil {
			failed[r.id] = r.repair(ctx, err, loaded)
		}
	}
	for _, r := range s.replicas {
		if !loaded && failed[r.id] == nil {
			failed[r.id] = errors.New("it is being started again with the previous weights")
		}
	}
	if len(failed) == 0 {
		return nil
	}
	return failed
}

// repair has a server started again that failed to load weights, unless it was not changed and no other server loaded
// them. The error says what is done.
func (r *replica) repair(ctx context.Context, err error, loaded bool) error {
	stuck, refused := (*wakeError)(nil), (*sdk.Error)(nil)
	next := "it is being started again with the previous weights"
	switch {
	case loaded:
		next = "it is being started again with the new weights"
	case errors.As(err, &refused) && !errors.As(err, &stuck): // before anything was touched
		return err
	}
	if errors.As(err, &stuck) {
		next = "it did not wake; " + next
	}
	if stuck != nil || loaded {
		err = errors.Join(err, r.replace(ctx))
	} else {
		r.askRestart()
	}
	return fmt.Errorf("%w; %s", err, next)
}

// target is a replica that answers, with what is needed to speak to it: the replica itself may go down meanwhile.
type target struct {
	replica *replica
	client  Client
	facts   Facts
}

// update loads weights into one replica. A load that failed half-way leaves parameters that kill some engines at their
// next request, while a good load repairs them: so it is tried twice, and until one has succeeded it is unknown what
// the server holds.
func (t target) update(ctx context.Context, w sdk.Weights) error {
	r := t.replica
	err := t.wakeAndLoad(ctx, &w)
	if err == nil {
		r.setVersion(w.Version)
		return nil
	}
	stuck, refused := (*wakeError)(nil), (*sdk.Error)(nil)
	if errors.As(err, &refused) { // before anything was touched
		return err
	}
	r.setVersion(inference.UnknownVersion)
	if errors.As(err, &stuck) {
		return err
	}
	r.s.host.Log("warn", fmt.Sprintf("replica %s: loading version %d failed, trying once more: %v", r.id, w.Version, err))
	if again := t.wakeAndLoad(ctx, &w); again != nil {
		return errors.Join(err, again)
	}
	r.setVersion(w.Version)
	return nil
}

// load puts weights into one server that has the memory for them.
func (t target) load(ctx context.Context, w sdk.Weights, asleep bool) error {
	note, err := t.client.Load(ctx, Load{Weights: w, Asleep: asleep})
	if err == nil && note != "" {
		t.replica.s.host.Log("debug", fmt.Sprintf("replica %s: version %d: %s", t.replica.id, w.Version, note))
	}
	return err
}

// loadFiles is load for weights that have to come from their files, however they were published.
func (t target) loadFiles(ctx context.Context, w sdk.Weights, asleep bool) error {
	w.Transport = transport.Reload
	if err := t.replica.s.spec.accepts(w); err != nil {
		return err
	}
	return t.load(ctx, w, asleep)
}

// restartWith starts every server again with the weights as its model. Replicas are restarted side by side: while
// requests are held, nothing is gained by keeping some of them up with the old version. Each comes back where it was,
// and its absence is not reported to the host: the gateway, which has asked for this, verifies its weights there.
func (s *Supervisor) restartWith(ctx context.Context, w sdk.Weights) error {
	if err := CheckCheckpoint(w.Path); err != nil {
		return err
	}
	s.mu.Lock()
	s.current, s.restarting = w, true
	for _, r := range s.replicas {
		r.stays = r.live
		r.askRestart()
	}
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		s.restarting = false
		s.mu.Unlock()
		s.notify()
	}()
	for {
		s.mu.Lock()
		behind := gateway.ReplicaErrors{}
		for _, r := range s.replicas {
			if !r.live || r.version != w.Version {
				behind[r.id] = fmt.Errorf("it was started again and does not serve version %d yet", w.Version)
			}
		}
		s.mu.Unlock()
		if len(behind) == 0 {
			return nil
		}
		if err := Pause(ctx, pollEvery); err != nil {
			for id := range behind {
				behind[id] = fmt.Errorf("%w: %w", behind[id], err)
			}
			return behind
		}
	}
}

// live are the replicas that answer.
func (s *Supervisor) live() []target {
	s.mu.Lock()
	defer s.mu.Unlock()
	var live []target
	for _, r := range s.replicas {
		if r.live {
			live = append(live, target{r, r.client, r.facts})
		}
	}
	return live
}

// awaitLive waits until at least one replica answers and returns those that do.
func (s *Supervisor) awaitLive(ctx context.Context) ([]target, error) {
	for {
		if live := s.live(); len(live) > 0 {
			return live, nil
		}
		if err := Pause(ctx, pollEvery); err != nil {
			return nil, fmt.Errorf("wait for a %s server that answers: %w", s.spec.Title, err)
		}
	}
}

// lockLive is awaitLive with s.updating held. The list is read again under the lock: a replica that was loading the
// previous weights meanwhile would keep them.
func (s *Supervisor) lockLive(ctx context.Context) ([]target, error) {
	for {
		if _, err := s.awaitLive(ctx); err != nil {
			return nil, err
		}
		s.updating.Lock()
		if live := s.live(); len(live) > 0 {
			return live, nil
		}
		s.updating.Unlock()
	}
}

// Logprobs asks one replica, so that a single one that missed an update is noticed.
func (s *Supervisor) Logprobs(ctx context.Context, which inference.Replica, tokens []int) ([]float64, error) {
	c, err := s.client(which)
	if err != nil {
		return nil, err
	}
	return c.Logprobs(ctx, tokens)
}

// ReadAnswer implements inference.AnswerReader.
func (s *Supervisor) ReadAnswer(ctx context.Context, which inference.Replica, a inference.Sampled,
) (inference.Said, error) {
	c, err := s.client(which)
	if err != nil {
		return inference.Said{}, err
	}
	reader, ok := c.(AnswerReader)
	if !ok {
		return inference.Said{}, inference.ErrNotRead
	}
	return reader.Read(ctx, a)
}

// UsageOf implements inference.UsageReporter.
func (s *Supervisor) UsageOf(ctx context.Context, which inference.Replica) (inference.Usage, error) {
	c, err := s.client(which)
	if err != nil {
		return inference.Usage{}, fmt.Errorf("%w: %w", inference.ErrServerAway, err)
	}
	reporter, ok := c.(UsageReporter)
	if !ok {
		return inference.Usage{}, fmt.Errorf("%s does not report its usage", s.spec.Title)
	}
	return reporter.Usage(ctx)
}

// Concurrency implements inference.UsageReporter.
func (s *Supervisor) Concurrency() int { return int(s.limit().AtOnce) }

// client returns the client of a replica that is up.
func (s *Supervisor) client(which inference.Replica) (Client, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range s.replicas {
		if r.id == which.ID && r.live && r.address.URL() == which.URL {
			return r.client, nil
		}
	}
	return nil, fmt.Errorf("replica %s at %s is gone; it is being started again", which.ID, which.URL)
}

// GeneratedTokens is the sum of what the servers have generated. It distinguishes a long generation from an engine that
// hangs.
func (s *Supervisor) GeneratedTokens(ctx context.Context) (float64, error) {
	live := s.live()
	if len(live) == 0 {
		return 0, errors.New("no server of this block is up")
	}
	total := 0.0
	for _, t := range live {
		counter, ok := t.client.(TokenCounter)
		if !ok {
			return 0, fmt.Errorf("%s does not count its tokens", s.spec.Title)
		}
		n, err := counter.GeneratedTokens(ctx)
		if err != nil {
			return 0, err
		}
		total += n
	}
	return total, nil
}
