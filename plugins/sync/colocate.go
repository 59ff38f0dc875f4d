package sync

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/zclconf/go-cty/cty"

	"github.com/recipe-rl/recipe/internal/gateway"
	"github.com/recipe-rl/recipe/internal/weightclient"
	"github.com/recipe-rl/recipe/internal/weightserver"
	"github.com/recipe-rl/recipe/sdk"
	"github.com/recipe-rl/recipe/sdk/inference"
	"github.com/recipe-rl/recipe/sdk/spec"
	"github.com/recipe-rl/recipe/sdk/transport"
)

// sleep is the time in which inference sleeps and the trainer has the GPU. Its holds are renewed until stop.
type sleep struct {
	since time.Time
	took  time.Duration // until all slept
	stop  func()        // of the renewals

	mu    sync.Mutex
	holds map[string]gpuLease // by the address of the inference block
}

// gpuLease is the hold under which one inference block sleeps.
type gpuLease struct {
	client *gateway.Client
	id     string
	reason string
}

// colocate reports whether inference is to sleep while the trainer works, or why it cannot.
func (c Config) colocate() (bool, error) {
	var awake []string
	for _, r := range c.Inference {
		if !canSleep(r) {
			awake = append(awake, r.Address)
		}
	}
	switch {
	case c.Colocated == "sleep" && len(awake) > 0:
		return false, &sdk.Error{
			Summary: "colocated = \"sleep\", and " + strings.Join(awake, ", ") + " cannot sleep",
			Detail: "a vLLM server sleeps with enable_sleep_mode = true, an SGLang server with enable_memory_saver = true; " +
				"both on a GPU only",
			Remedy: "set that attribute there, or colocated = \"share\" here, which keeps both in memory side by side",
		}
	case c.Colocated == "sleep":
		return true, nil
	case c.Colocated != "auto" || len(awake) > 0:
		return false, nil
	}
	// Sleeping gains nothing where no block is on a GPU of the trainer's.
	return c.meets(), nil
}

// meets reports whether an inference block may be on a GPU of the trainer's.
func (c Config) meets() bool {
	return slices.ContainsFunc(c.Inference, func(r spec.Ref) bool {
		return mayMeet(listed(c.Trainer, "devices"), listed(r, "devices"))
	})
}

// mayMeet reports whether two blocks have a GPU in common, as far as that is known.
func mayMeet(mine, theirs []string) bool {
	return len(mine) == 0 || len(theirs) == 0 || slices.ContainsFunc(mine,
		func(d string) bool { return slices.Contains(theirs, d) })
}

// canSleep is the output "sleeps" of an inference block.
func canSleep(r spec.Ref) bool {
	if r.Values == cty.NilVal || !r.Values.Type().IsObjectType() || !r.Values.Type().HasAttribute("sleeps") {
		return false
	}
	v, _ := r.Values.GetAttr("sleeps").Unmark()
	return v.IsKnown() && !v.IsNull() && v.Type() == cty.Bool && v.True()
}

// level is how deep inference sleeps: its weights are dropped only where others certainly come at wake-up, and those
// that it serves now can be read again if the trainer dies meanwhile.
func (s *syncer) level() int {
	switch files := s.last != nil && s.last.Weights.Path != "" && s.last.Weights.Format != "lora"; {
	case s.transport == transport.LoRA: // an adapter alone does not make a model
		return int(inference.SleepKeep)
	case s.config.SleepLevel > 0:
		return int(s.config.SleepLevel)
	case s.config.Every == 1 && files && s.transport.Files():
		return int(inference.SleepDrop)
	}
	return int(inference.SleepKeep)
}

// giveTurn puts inference to sleep and lets the trainer work. An error ends the block: the trainer has the reason.
func (s *syncer) giveTurn(ctx context.Context, p weightserver.Publication) error {
	given := weightserver.TurnGiven{Step: p.Step}
	var err error
	if s.asleep == nil {
		alive := s.keepAlive(ctx)
		err = s.awaitStep(ctx, p.Step) // the engines could not answer while they sleep
		alive()
		if err != nil {
			return err
		}
		within, cancel := context.WithTimeout(ctx, s.config.Timeout)
		defer cancel()
		quiet := s.keepAlive(within)
		err = s.putAllToSleep(ctx, within, p.Step)
		quiet()
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
	if err != nil {
		given.Error = err.Error()
	}
	refused := s.trainer.Turn(ctx, given)
	switch {
	case err != nil:
		return &sdk.Error{
			Summary: fmt.Sprintf("inference could not be put to sleep for step %d", p.Step),
			Remedy: "read the log of the inference blocks that are named; colocated = \"share\" trains beside a " +
				"server that stays awake",
			Err: err,
		}
	case refused != nil: // it died meanwhile, or asks again
		s.warn(ctx, "give %s its turn: %v", s.config.Trainer.Address, refused)
		s.wake(ctx, "the trainer did not take its turn")
	default:
		s.host.Phase(sdk.Ready, fmt.Sprintf("inference sleeps while %s works", s.config.Trainer.Address))
	}
	return nil
}

// putAllToSleep holds every gateway and puts the engines behind to sleep; all or none. It lasts as long as ctx.
func (s *syncer) putAllToSleep(ctx, within context.Context, step int64) error {
	begun, level := time.Now(), s.level()
	n := s.newSleep(ctx)
	missing, refused := s.servers, 0
	for {
		failed := map[*server]error{}
		var mu sync.Mutex
		s.each(missing, func(v *server) {
			if err := s.putToSleep(within, n, v, step, level); err != nil {
				mu.Lock()
				failed[v] = fmt.Errorf("%s: %w", v.address, err)
				mu.Unlock()
			}
		})
		if len(failed) == 0 {
			n.took = time.Since(begun)
			s.asleep = n
			return nil
		}
		if missing = failing(missing, failed); anySleepRefused(failed) {
			refused++
		}
		timer := time.NewTimer(checkEvery)
		select {
		case <-timer.C:
			if refused < 2 {
				s.host.Phase(sdk.Degraded, fmt.Sprintf("step %d waits until inference sleeps: %v", step, joined(failed)))
				continue
			}
		case <-within.Done():
			timer.Stop()
		}
		s.asleep = n
		s.wake(ctx, "not all could be put to sleep")
		return errors.Join(within.Err(), joined(failed))
	}
}

// errRefused marks an engine that answered and does not sleep.
var errRefused = errors.New("it does not fall asleep")

func anySleepRefused(failed map[*server]error) bool {
	for _, err := range failed {
		if errors.Is(err, errRefused) {
			return true
		}
	}
	return false
}

// putToSleep holds one gateway and puts the engine behind it to sleep.
func (s *syncer) putToSleep(ctx context.Context, n *sleep, v *server, step int64, level int) error {
	reason := fmt.Sprintf("%s leases the GPU to %s for step %d", s.address, s.config.Trainer.Address, step)
	id, held := n.hold(v.address)
	defer s.waitFor(v.address, "it to give back the GPU for step %d", step)()
	h, err := v.client.Hold(ctx, gateway.HoldRequest{
		ID: id, Mode: gateway.Mode(s.config.InFlight), Lease: holdLease, Drain: s.config.Timeout, Reason: reason,
	})
	if err != nil {
		return fmt.Errorf("hold it: %w", err)
	}
	n.put(v.address, gpuLease{v.client, h.ID, reason})
	if err := v.client.Sleep(ctx, h.ID, level); err != nil {
		if !held {
			n.remove(v.address)
			_ = v.client.Resume(ctx, h.ID) // else its lease ends it
		}
		return fmt.Errorf("%w: %w", errRefused, err)
	}
	return nil
}

// newSleep begins to renew holds.
func (s *syncer) newSleep(ctx context.Context) *sleep {
	n := &sleep{since: time.Now(), holds: map[string]gpuLease{}}
	n.stop = repeat(ctx, holdLease/3, n.renew)
	return n
}

// renew asks side by side: a gateway that hangs must not wake the engines of the others.
func (n *sleep) renew(ctx context.Context) {
	var wg sync.WaitGroup
	for _, l := range n.all() {
		wg.Go(func() {
			ctx, cancel := context.WithTimeout(ctx, callTimeout)
			defer cancel()
			// keepAsleep notices one that has ended and starts it again.
			_, _ = l.client.Hold(ctx, gateway.HoldRequest{ID: l.id, Lease: holdLease, Reason: l.reason})
		})
	}
	wg.Wait()
}

func (n *sleep) hold(address string) (id string, ok bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	l, ok := n.holds[address]
	return l.id, ok
}

func (n *sleep) put(address string, l gpuLease) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.holds[address] = l
}

func (n *sleep) remove(address string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.holds, address)
}

func (n *sleep) all() map[string]gpuLease {
	n.mu.Lock()
	defer n.mu.Unlock()
	return maps.Clone(n.holds)
}

// keepAsleep sees to it that an inference block that came back, or whose hold ran out, does not serve beside the
// trainer.
func (s *syncer) keepAsleep(ctx context.Context, v *server, status gateway.Status) {
	id, ok := s.asleep.hold(v.address)
	if ok && status.Held && status.Hold.ID == id && status.Asleep > 0 {
		v.trouble = ""
		return
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	if err := s.putToSleep(ctx, s.asleep, v, 0, s.level()); err != nil && ctx.Err() == nil {
		v.trouble = "it is awake while the trainer works: " + err.Error()
	}
}

// adoptHolds turns the holds of sleeping inference into those of an update, which wakes inference.
func (s *syncer) adoptHolds(u *update) (stop func(), ok bool) {
	n := s.asleep
	if n == nil {
		return nil, false
	}
	holds := n.all()
	for _, v := range s.servers {
		if l, held := holds[v.address]; held {
			u.holds[v] = l.id
		}
	}
	if len(u.holds) == 0 {
		n.stop()
		s.asleep = nil
		return nil, false
	}
	u.phases["sleep"], u.phases["turn"] = n.took.Seconds(), time.Since(n.since).Seconds()-n.took.Seconds()
	s.asleep = nil
	return n.stop, true
}

// endTurn wakes inference after a turn without new weights.
func (s *syncer) endTurn(ctx context.Context, p weightserver.Publication) error {
	quiet := s.keepAlive(ctx)
	s.wake(ctx, fmt.Sprintf("step %d brought no new weights", p.Step))
	quiet()
	if err := s.notifyTrainer(ctx, weightserver.Done{Version: p.Version}); err != nil {
		s.warn(ctx, "the turn of step %d: %v", p.Step, err)
	}
	return ctx.Err()
}

// wake wakes inference with the weights that it served before: gateways wake their engines before a hold ends. When ctx
// has ended the holds stay: the next attempt of this block adopts them, or their lease ends them.
func (s *syncer) wake(ctx context.Context, why string) {
	n := s.asleep
	if n == nil {
		return
	}
	s.asleep = nil
	n.stop()
	if ctx.Err() != nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, s.config.Timeout)
	defer cancel()
	var wg sync.WaitGroup
	for address, l := range n.all() {
		wg.Go(func() {
			if err := l.client.Resume(ctx, l.id); err != nil && !errors.Is(err, gateway.ErrNotHeld) {
				s.warn(ctx, "wake %s: %v", address, err)
			}
		})
	}
	wg.Wait()
	s.host.Log("info", "inference is awake again: "+why)
	s.host.Phase(sdk.Ready, "")
}

// reconcile makes sleep and wakefulness fit what the trainer says of its turn, after this block or the trainer was
// started again.
func (s *syncer) reconcile(ctx context.Context, hasTurn bool) {
	if hasTurn && s.colocated {
		if s.asleep == nil {
			s.asleep = s.newSleep(ctx)
		}
		for _, v := range s.servers {
			if v.lease != "" { // of the previous attempt; others are put to sleep when they are checked
				s.asleep.put(v.address, gpuLease{v.client, v.lease, s.address + " leases the GPU to " + s.config.Trainer.Address})
			}
			v.lease = ""
		}
		return
	}
	s.wakeLeases(ctx)
	s.wake(ctx, "the trainer has no turn")
}

// wakeLeases ends the holds of an earlier attempt under which inference still sleeps.
func (s *syncer) wakeLeases(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, s.config.Timeout)
	defer cancel()
	s.each(s.servers, func(v *server) {
		if v.lease != "" {
			_ = v.client.Resume(ctx, v.lease) // it may have run out
		}
		v.lease = ""
	})
}

// away reports whether an error means that the trainer does not use its GPU any more.
func away(err error) bool {
	return errors.Is(err, weightclient.ErrAway) || errors.Is(err, weightclient.ErrOver)
}
