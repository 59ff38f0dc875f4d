package gateway

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/recipe-rl/recipe/sdk"
)

// WeightUpdate asks that the replicas serve new weights.
type WeightUpdate struct {
	// Weights are what to load. Their version must be above the current one, or equal to it to load the same weights
	// again, unless Rollback is set.
	sdk.Weights
	// Step is the optimizer step of the weights; nil: not known.
	Step *int64 `json:"step,omitempty"`
	// Mode describes what happens to requests in flight. Default: ModeDrain. ModeNone holds nothing.
	Mode Mode `json:"mode,omitempty"`
	// Hold is the ID of a hold that the caller has and will end; then the update neither holds nor resumes.
	Hold string `json:"hold,omitempty"`
	// Rollback allows a version below the current one, after the trainer went back to an earlier checkpoint.
	Rollback bool `json:"rollback,omitempty"`
	// Check verifies that the weights arrived; without it, Config.Update's result is trusted.
	Check *Check `json:"check,omitempty"`
}

// version is the policy version in the gateway's own form.
func (u *WeightUpdate) version() int { return int(u.Version) }

// Check is a text and the trainer's log-probabilities of it.
type Check struct {
	Tokens []int `json:"tokens"` // token ids of the text
	// the trainer's log-probability of each token given those before it; the first is not compared
	Logprobs  []float64 `json:"logprobs"`
	Tolerance float64   `json:"tolerance"` // of the root mean square of the differences, for example 1e-3 in float32
	// Later is an ID under which Expect brings Logprobs, so that the trainer computes them while the weights are loaded.
	// No replica serves them before they have been compared.
	Later string `json:"later,omitempty"`

	pending *pendingLogprobs // of Later
}

// UpdateResult describes what a weight update did.
type UpdateResult struct {
	Version  int             `json:"version"`  // current policy version after it
	Replicas []ReplicaResult `json:"replicas"` // the result of each
	Drain    time.Duration   `json:"drain_ns"` // time until requests in flight had ended, or were kept or aborted
	Load     time.Duration   `json:"load_ns"`  // time until the last replica had loaded and was checked
	Check    time.Duration   `json:"check_ns"` // the part of Load after the last replica had loaded
	Held     time.Duration   `json:"held_ns"`  // time for which new requests waited
}

// ReplicaResult is one replica's part in a weight update.
type ReplicaResult struct {
	ID         string  `json:"id"`
	Error      string  `json:"error,omitempty"`      // empty if it serves the weights now
	Difference float64 `json:"difference,omitempty"` // largest difference of log-probabilities, if they were checked
}

// ErrMismatch reports that a replica does not serve the weights it should.
var ErrMismatch = errors.New("served weights differ from the trainer's")

// UpdateWeights brings new weights to every healthy replica: requests are held as u.Mode says, Config.Update is called
// once for all, the outcome is checked if u.Check is set, the version is raised, and requests go through again. A
// replica that fails is taken out of service and named in the result; the update fails only if no replica loaded them,
// and then the version stays, and nothing is served until an update succeeds or Admit has loaded the previous weights
// again.
func (g *Gateway) UpdateWeights(ctx context.Context, u WeightUpdate) (UpdateResult, error) {
	if err := g.checkUpdate(&u); err != nil {
		return UpdateResult{Version: g.Version()}, err
	}
	ctx, cancel := g.bounded(ctx)
	defer cancel()
	if err := g.awaitReplica(ctx, u.version()); err != nil {
		return UpdateResult{Version: g.Version()}, err
	}
	if err := g.begin(ctx); err != nil {
		return UpdateResult{Version: g.Version()}, err
	}
	res, err := g.update(ctx, u)
	g.updating.unlock()
	g.afterUpdate()
	return res, err
}

// awaitReplica waits until a replica is up: one that is being started again will be.
func (g *Gateway) awaitReplica(ctx context.Context, version int) error {
	late, stop := g.alarm(g.cfg.UpdateTimeout / 2)
	defer stop()
	for {
		g.mu.Lock()
		up, changed := false, g.changed
		why := g.whyNoneLocked(g.cfg.Clock.Now())
		for _, r := range g.replicas {
			up = up || r.healthy
		}
		g.mu.Unlock()
		if up {
			return nil
		}
		if err := g.waitChange(ctx, changed, nil, late, nil); err != nil {
			return fmt.Errorf("gateway: weight update to version %d waited for a replica that is up (at most %s): %s: %w",
				version, g.cfg.UpdateTimeout/2, why, err)
		}
	}
}

func (g *Gateway) checkUpdate(u *WeightUpdate) error {
	setDefault(&u.Mode, ModeDrain)
	if g.cfg.Update == nil {
		return errors.New("gateway: this inference plugin does not support weight updates (Config.Update is not set); " +
			"use the transport restart")
	}
	current := g.Version()
	if u.version() < current && !u.Rollback {
		return fmt.Errorf("gateway: weight update to policy version %d, the current one is %d; set rollback if the trainer "+
			"went back to an earlier checkpoint", u.Version, current)
	}
	if u.Version < 0 {
		return fmt.Errorf("gateway: weight update to policy version %d; want 0 or more", u.Version)
	}
	if c := u.Check; c != nil {
		if len(c.Tokens) < 2 || (c.Later == "" && len(c.Logprobs) != len(c.Tokens)) || !(c.Tolerance > 0) {
			return fmt.Errorf("gateway: check has %d tokens, %d logprobs, tolerance %g; want at least 2 tokens, as many "+
				"logprobs, and a tolerance above 0", len(c.Tokens), len(c.Logprobs), c.Tolerance)
		}
	}
	return nil
}

// begin takes g.updating for an update. It waits for replicas that are being admitted, which come back by themselves at
// any time, but not for another update, which somebody else has asked for.
func (g *Gateway) begin(ctx context.Context) error {
	if g.updating.tryLock() {
		return nil
	}
	if g.admitting.Load() > 0 {
		return g.updating.lock(ctx)
	}
	if g.updating.tryLock() { // the last admission has just ended
		return nil
	}
	return fmt.Errorf("%w: another weight update is in progress; wait for it", ErrHeld)
}

// update is UpdateWeights with g.updating held.
func (g *Gateway) update(ctx context.Context, u WeightUpdate) (res UpdateResult, err error) {
	start := g.cfg.Clock.Now()
	res.Version = g.Version()
	switch {
	case u.Hold != "":
		if u.Mode, err = g.owns(u.Hold); err != nil {
			return res, err
		}
	case u.Mode != ModeNone:
		h, err := g.Hold(ctx, HoldRequest{Mode: u.Mode, Lease: min(g.cfg.UpdateTimeout, g.cfg.MaxLease),
			Reason: fmt.Sprintf("weight update to version %d", u.Version)})
		if err != nil {
			return res, err
		}
		defer func() {
			res.Held = g.cfg.Clock.Now().Sub(start)
			g.met.updates.Observe("held", res.Held.Seconds())
			err = errors.Join(err, g.endHold(h.ID, EventResumed, fmt.Sprintf("requests go through at version %d", res.Version)))
		}()
	}
	_ = g.ExpectUpdates(u.Mode) // known: it is valid
	loaded := g.cfg.Clock.Now()
	res.Drain = loaded.Sub(start)
	var checking time.Time
	res.Replicas, checking, err = g.loadAll(ctx, u)
	done := g.cfg.Clock.Now()
	res.Load = done.Sub(loaded)
	if !checking.IsZero() {
		res.Check = done.Sub(checking)
		g.met.updates.Observe("check", res.Check.Seconds())
	}
	g.met.updates.Observe("drain", res.Drain.Seconds())
	g.met.updates.Observe("load", res.Load.Seconds())
	if err != nil {
		return res, err
	}
	res.Version = u.version()
	return res, nil
}

// owns returns the mode of a hold, which must be in force.
func (g *Gateway) owns(id string) (Mode, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.hold == nil || g.hold.ID != id {
		return "", fmt.Errorf("%w by %q: its lease may have run out; hold again before updating", ErrNotHeld, id)
	}
	return g.hold.Mode, nil
}

// ExpectUpdates announces what later weight updates do with requests in flight. Under ModeKeep and ModeNone an answer
// may span an update, and requests of /generate are from now on sent to the engine in a way that shows which version
// sampled which token. Each update announces its mode for those after it; this call is for the requests before the
// first.
func (g *Gateway) ExpectUpdates(m Mode) error {
	switch m {
	case ModeDrain, ModeKeep, ModeAbort, ModeNone:
	default:
		return fmt.Errorf("gateway: mode of later weight updates is %q; want %q, %q, %q or %q", m, ModeDrain,
			ModeKeep, ModeAbort, ModeNone)
	}
	g.mu.Lock()
	g.expected = m
	g.mu.Unlock()
	return nil
}

// loadAll loads the weights into every healthy replica and raises the version. Checking is when they had loaded.
func (g *Gateway) loadAll(ctx context.Context, u WeightUpdate) (_ []ReplicaResult, checking time.Time, _ error) {
	if c := u.Check; c != nil && c.Later != "" {
		c.pending = g.pendingFor(c.Later)
		defer g.forget(c.pending)
	}
	g.mu.Lock()
	var list []*replica
	for _, r := range g.replicas {
		if r.healthy {
			list = append(list, r)
			r.pending = u.version()
			g.raiseLocked(r, u.version())
		}
	}
	g.mu.Unlock()
	if len(list) == 0 {
		return nil, checking, fmt.Errorf("gateway: weight update to version %d: no replica is up; admit one first",
			u.Version)
	}
	results, checking, errs := g.loadChecked(ctx, list, u)
	good := 0
	g.mu.Lock()
	for i, r := range list {
		if errs[i] == nil {
			good++
			r.version, r.pending, r.reason = u.version(), UnknownVersion, ""
		}
	}
	if good > 0 {
		g.version = u.version()
		u.Hold, u.Rollback = "", false
		u.Check = u.Check.settled()
		g.last = &u
		g.asleep = 0 // Config.Update woke them
	}
	g.changedLocked()
	g.mu.Unlock()
	if good == 0 {
		return results, checking, fmt.Errorf("gateway: weight update to version %d: no replica took it, nothing is served "+
			"until one is admitted or an update succeeds: %w", u.Version, errors.Join(errs...))
	}
	g.emit(Event{Kind: EventUpdated, Version: u.version(),
		Message: fmt.Sprintf("%d of %d replicas serve policy version %d", good, len(list), u.Version)})
	return results, checking, nil
}

// ReplicaErrors say which replicas did not load weights, by ID, and why; all others did.
type ReplicaErrors map[string]error

func (e ReplicaErrors) Error() string { return errors.Join(e.Unwrap()...).Error() }

// Unwrap returns the errors in the order of the replicas' IDs, each with its ID in front.
func (e ReplicaErrors) Unwrap() []error {
	var errs []error
	for _, id := range slices.Sorted(maps.Keys(e)) {
		errs = append(errs, fmt.Errorf("replica %s: %w", id, e[id]))
	}
	return errs
}

// loadChecked loads the weights by one call and compares log-probabilities of each replica, side by side. A replica
// that fails is excluded: its weights may be of either version, or broken. Loaded is when the call had ended.
func (g *Gateway) loadChecked(ctx context.Context, list []*replica, u WeightUpdate) (results []ReplicaResult,
	loaded time.Time, errs []error) {
	targets := make([]Replica, len(list))
	for i, r := range list {
		targets[i] = r.Replica
	}
	failed := errors.New("gateway: Config.Update is not set")
	if g.cfg.Update != nil {
		failed = g.cfg.Update(ctx, targets, u)
	}
	var some ReplicaErrors
	partly := errors.As(failed, &some)
	loaded = g.cfg.Clock.Now()
	results, errs = make([]ReplicaResult, len(list)), make([]error, len(list))
	var wg sync.WaitGroup
	for i, r := range list {
		wg.Go(func() {
			err := failed
			if partly {
				err = some[r.ID]
			}
			results[i].ID = r.ID
			if results[i].Difference, errs[i] = g.checkLoaded(ctx, r, u, err); errs[i] != nil {
				results[i].Error = errs[i].Error()
			}
		})
	}
	wg.Wait()
	return results, loaded, errs
}

// checkLoaded checks one replica after the weights were loaded, or could not be.
func (g *Gateway) checkLoaded(ctx context.Context, r *replica, u WeightUpdate, err error) (difference float64,
	_ error) {
	kind := EventUpdateFailed
	if err != nil {
		err = fmt.Errorf("load policy version %d into replica %s: %w", u.Version, r.ID, err)
	} else if u.Check != nil {
		if difference, err = g.verify(ctx, r.Replica, *u.Check, u.version()); errors.Is(err, ErrMismatch) {
			kind = EventMismatch
		}
	}
	if err != nil {
		g.exclude(r, kind, err)
	}
	return difference, err
}

// compare returns the largest difference between a replica's log-probabilities and those expected. What must be within
// the tolerance is the root mean square of the differences: in 16 bits single ones of the right weights are as large as
// most of wrong weights (docs/weights.md).
func (g *Gateway) compare(ctx context.Context, r Replica, c Check) (float64, error) {
	got, err := g.logprobsOf(ctx, r, c.Tokens)
	if err != nil {
		return 0, fmt.Errorf("checking the weights of replica %s: %w", r.ID, err)
	}
	if c.Logprobs, err = c.expected(ctx); err != nil {
		return 0, fmt.Errorf("checking the weights of replica %s: %w", r.ID, err)
	}
	worst, at, squares := 0.0, 0, 0.0
	for i := 1; i < len(c.Tokens); i++ {
		d := math.Abs(got[i] - c.Logprobs[i])
		if math.IsNaN(d) {
			d = math.MaxFloat64 // a number that JSON can represent
		}
		if d > worst {
			worst, at = d, i
		}
		squares += d * d
	}
	if rms := math.Sqrt(squares / float64(len(c.Tokens)-1)); rms > c.Tolerance {
		return worst, fmt.Errorf("%w: replica %s: root mean square of %d differences of log-probabilities %.3g, "+
			"tolerance %.3g; the largest is token %d (position %d): %.6g, the trainer %.6g", ErrMismatch, r.ID,
			len(c.Tokens)-1, rms, c.Tolerance, c.Tokens[at], at, got[at], c.Logprobs[at])
	}
	return worst, nil
}

// afterUpdate ends a hold whose lease ran out while an update was going on under it.
func (g *Gateway) afterUpdate() {
	g.mu.Lock()
	h := g.hold
	overdue := h != nil && h.overdue
	g.mu.Unlock()
	if overdue {
		g.expire(h)
	}
}
