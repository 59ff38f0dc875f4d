package sync

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/recipe-rl/recipe/internal/diskwait"
	"github.com/recipe-rl/recipe/internal/gateway"
	"github.com/recipe-rl/recipe/internal/weightclient"
	"github.com/recipe-rl/recipe/internal/weightserver"
	"github.com/recipe-rl/recipe/sdk"
	"github.com/recipe-rl/recipe/sdk/trainer"
	"github.com/recipe-rl/recipe/sdk/transport"
)

// update is one publication in progress.
type update struct {
	weightserver.Publication
	started time.Time
	phases  map[string]float64 // seconds
	holds   map[*server]string // ID of the hold, empty where nothing is held; its keys are those that are updated
	away    map[*server]bool   // those of which no server is up: they take note of the weights
	weights sdk.Weights
	check   *gateway.Check
	proof   *proof // log-probabilities of check
	touched bool   // inference has been told to load

	mu     sync.Mutex          // of what follows and of holds, which goroutines side by side write
	worst  map[*server]float64 // largest difference of log-probabilities
	loaded map[*server]bool    // at least one replica serves the weights
	failed map[*server]error
}

// timed runs one phase and notes how long it took.
func (u *update) timed(phase string, f func() error) error {
	begun := time.Now()
	err := f()
	u.phases[phase] += time.Since(begun).Seconds()
	return err
}

// updateWeights loads one publication into inference and reports the result to the trainer. An error ends the block:
// the trainer has the reason.
func (s *syncer) updateWeights(ctx context.Context, p weightserver.Publication) error {
	u := &update{
		Publication: p, started: time.Now(), phases: map[string]float64{}, holds: map[*server]string{},
		worst: map[*server]float64{}, loaded: map[*server]bool{}, failed: map[*server]error{},
	}
	quiet := s.keepAlive(ctx)
	if err := s.timedKept(ctx, u); err != nil {
		quiet()
		return err
	}
	// Weights are asked for before anything of inference is touched, so an update that found no room for them is begun
	// again when there is some. The timeout is that of one attempt.
	err := diskwait.Await(ctx, s.host, sdk.Degraded, s.dir, func() error {
		within, cancel := context.WithTimeout(ctx, s.config.Timeout)
		defer cancel()
		return s.apply(within, u)
	})
	quiet()
	if ctx.Err() != nil {
		return ctx.Err() // the publication stays pending, and the holds have been ended
	}
	if err != nil {
		// Its next attempt publishes first of all; meanwhile inference is watched as usual.
		if why := s.abandoned(ctx, p); why != "" {
			s.host.Log("warn", fmt.Sprintf("policy version %d is given up, %s %s: %v", p.Version, s.config.Trainer.Address,
				why, err))
			return s.again(ctx)
		}
	}
	done := weightserver.Done{Version: p.Version}
	if err != nil {
		done.Error = err.Error()
	}
	if unsent := s.notifyTrainer(ctx, done); unsent != nil {
		s.warn(ctx, "policy version %d: %v", p.Version, unsent)
	}
	if err != nil {
		remedy := "read the log of the inference blocks that are named"
		if !u.touched {
			remedy = "inference was not touched: read the log of " + s.config.Trainer.Address
		}
		return &sdk.Error{
			Summary: fmt.Sprintf("policy version %d did not reach inference", p.Version), Remedy: remedy, Err: err,
		}
	}
	return nil
}

// abandoned says why a publication is not waited for any more; empty: the trainer waits. It may have died and even come
// back while inference was looked after, before this block read its answer.
func (s *syncer) abandoned(ctx context.Context, p weightserver.Publication) string {
	asking, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	state, err := s.trainer.State(asking)
	switch {
	case ctx.Err() != nil:
		return ""
	case errors.Is(err, weightclient.ErrAway):
		return "died while it was brought to inference"
	case err == nil && (state.Pending == nil || state.Pending.Version != p.Version):
		return "does not offer it any more"
	}
	return ""
}

// keepAlive keeps contact with the trainer: loading a large model takes longer than its backoff.
func (s *syncer) keepAlive(ctx context.Context) (stop func()) {
	trainer := s.trainer
	return repeat(ctx, keepAliveEvery, func(ctx context.Context) {
		_, _ = trainer.State(ctx) // if it does not answer, publishing and acknowledging will say so
	})
}

// keepAliveEvery is well within the backoff of a trainer.
const keepAliveEvery = 5 * time.Second

// repeat calls f again and again until stop, which waits for a call in progress, or the end of the context.
func repeat(ctx context.Context, every time.Duration, f func(context.Context)) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		tick := time.NewTicker(every)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
				f(ctx)
			}
		}
	}()
	return func() { cancel(); <-done }
}

// apply is the update itself: publish, hold, load, verify, raise the version, let requests through.
func (s *syncer) apply(ctx context.Context, u *update) error {
	// What is published is made ready before requests are held, so that inference continues meanwhile.
	if err := u.timed("publish", func() error { return s.awaitWeights(ctx, u) }); err != nil {
		return err
	}
	wanted, done := context.WithCancel(ctx)
	u.proof = s.prove(ctx, wanted, u)
	defer func() { done(); <-u.proof.over }()
	if s.transport == transport.Delta {
		if err := u.timed("send", func() error { return s.deliverAll(ctx, u) }); err != nil {
			return err
		}
	}
	if err := u.timed("kept", func() error { return s.awaitKept(ctx, u) }); err != nil {
		return err
	}
	defer s.release(u)
	stop, err := s.hold(ctx, u)
	if err != nil {
		return err
	}
	defer stop()
	if err := s.load(ctx, u); err != nil {
		return err
	}
	done()
	<-u.proof.over
	u.check.Logprobs, u.phases["proof"] = u.proof.logprobs, u.proof.seconds
	if u.proof.taken > 0 {
		u.phases["taken"] = u.proof.taken
	}
	s.last, s.asked = &published{Weights: u.weights, Check: u.check, Step: &u.Step}, false
	s.notifyStarting(ctx, u)
	s.raise(u.Version)
	if err := s.saveLast(); err != nil {
		return err
	}
	s.notifyTrajectories(ctx)
	stop()
	_ = u.timed("resume", func() error { s.release(u); return nil })
	s.report(u)
	prune(s.dir, u.weights.Path)
	return nil
}

// publish lets the trainer write its weights, and decides on the text that they are verified with.
func (s *syncer) publish(ctx context.Context, u *update) error {
	request := trainer.PublishRequest{Version: u.Version, Transport: s.transport}
	if s.transport.Files() {
		request.Dir = folder(s.dir, u.Version)
		// What an attempt that was broken off has left there is not to be mistaken for the new weights.
		if err := os.RemoveAll(request.Dir); err != nil {
			return fmt.Errorf("make room for policy version %d: %w", u.Version, err)
		}
		if err := os.MkdirAll(request.Dir, 0o700); err != nil {
			return fmt.Errorf("make room for policy version %d: %w", u.Version, err)
		}
	} else {
		// With every step published, a trainer that waits for data has not changed since; else it may have, and inference
		// that is restarted would wait for weights while the trainer waits for inference.
		request.Keep = s.config.Every > 1
		request.Have = s.handles.key
	}
	w, err := s.trainer.Publish(ctx, request)
	if err != nil {
		return fmt.Errorf("publish policy version %d: %w", u.Version, err)
	}
	if w.Handles, err = s.handles.full(w.Handles); err != nil {
		return fmt.Errorf("publish policy version %d: %w", u.Version, err)
	}
	w.Version = u.Version
	if w.Transport == "" {
		w.Transport = s.transport
	}
	if s.transport.Files() {
		if _, err := os.Stat(w.Path); err != nil {
			return fmt.Errorf("publish policy version %d: %s reports the weights in %q: %w", u.Version,
				s.config.Trainer.Address, w.Path, err)
		}
	}
	tokens, err := s.probe(ctx)
	if err != nil {
		return err
	}
	u.weights = w
	u.check = &gateway.Check{Tokens: tokens, Tolerance: s.config.tolerance(w.Precision)}
	return nil
}

// load lets every held gateway load and verify the weights; one that fails gets a second try.
func (s *syncer) load(ctx context.Context, u *update) error {
	var list []*server
	for v := range u.holds {
		list = append(list, v)
	}
	attempt := func(v *server) {
		err := s.deliver(ctx, v, u.weights)
		done := s.waitFor(v.address, "policy version %d to be loaded and verified", u.Version)
		var result gateway.UpdateResult
		if err == nil {
			result, err = s.updateGateway(ctx, v, u)
		}
		done()
		worst, failed := inspect(result)
		u.mu.Lock()
		defer u.mu.Unlock()
		u.phases["verify"] = max(u.phases["verify"], result.Check.Seconds())
		delete(u.failed, v)
		u.worst[v], u.loaded[v] = worst, err == nil
		if err := errors.Join(err, failed); err != nil {
			u.failed[v] = fmt.Errorf("%s: %w", v.address, err)
		}
	}
	begun := time.Now()
	s.each(list, attempt)
	u.phases["update"] += time.Since(begun).Seconds() // not by timed: attempts note phases of their own
	if err := u.proof.failed(); err != nil {
		return err
	}
	if again := failing(list, u.failed); len(again) > 0 && ctx.Err() == nil {
		s.warn(ctx, "policy version %d is loaded once more: %v", u.Version, joined(u.failed))
		begun := time.Now()
		s.each(again, func(v *server) { s.reinstate(ctx, v); attempt(v) })
		u.phases["repair"] += time.Since(begun).Seconds()
	}
	for _, v := range list {
		if u.loaded[v] {
			return nil // failed servers are out of service until repair succeeds
		}
	}
	return fmt.Errorf("no inference block loaded policy version %d: %w", u.Version, joined(u.failed))
}

// inspect finds the largest difference of log-probabilities and the replicas that did not load the weights.
func inspect(r gateway.UpdateResult) (worst float64, err error) {
	var errs []error
	for _, replica := range r.Replicas {
		worst = max(worst, replica.Difference)
		if replica.Error != "" {
			errs = append(errs, errors.New(replica.Error)) // names the replica
		}
	}
	return worst, errors.Join(errs...)
}

// reinstate includes replicas that were taken out of service in the next update; they get no requests before they pass
// it.
func (s *syncer) reinstate(ctx context.Context, v *server) {
	status, err := v.client.Status(ctx)
	if err != nil {
		return
	}
	for _, r := range status.Replicas {
		if !r.Healthy && r.Version < 0 {
			_ = v.client.SetReplicaHealthy(ctx, r.ID, true, "")
		}
	}
}

func failing(list []*server, failed map[*server]error) []*server {
	var left []*server
	for _, v := range list {
		if failed[v] != nil {
			left = append(left, v)
		}
	}
	return left
}

func joined(failed map[*server]error) error {
	var errs []error
	for _, err := range failed {
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// folder is where a version's files go.
func folder(dir string, version int64) string {
	return filepath.Join(dir, "weights", fmt.Sprintf("v%09d", version))
}
