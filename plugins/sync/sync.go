package sync

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/recipe-rl/recipe/internal/gateway"
	"github.com/recipe-rl/recipe/internal/weightclient"
	"github.com/recipe-rl/recipe/internal/weightserver"
	"github.com/recipe-rl/recipe/sdk"
	"github.com/recipe-rl/recipe/sdk/outputs"
)

// How often things are looked at again.
const (
	checkEvery  = time.Second
	pendingWait = 20 * time.Second
	callTimeout = 10 * time.Second // of calls that do no work
)

// syncer is one sync block. Its state belongs to the goroutine of Run, but for version.
type syncer struct {
	updates chan Config

	host    sdk.Host
	address string
	dir     string
	setup
	text       []int      // tokens of the fixed text; nil: not asked for yet
	notified   int64      // version that the trajectory API knows
	told       bool       // it knows that answers in flight go on when new weights come
	unnotified bool       // telling it failed the last time, which has been reported
	last       *published // the newest weights that all went well with; nil: none yet
	unsaved    string     // why last could not be recorded; empty: it is
	attached   bool
	over       bool // the trainer has reported its end
	// the trainer has been asked to publish again, because inference lost weights that are in no file
	asked  bool
	asleep *sleep // inference sleeps now; nil: it is awake
	// of the tensors in the trainer's memory, as published last
	handles handles
	// of last, or what inference served when this block came; goroutines of each read and raise it
	version atomic.Int64
}

// server is one inference block.
type server struct {
	address string
	client  *gateway.Client
	trouble string    // what is wrong with it, as last reported; empty: nothing
	retry   time.Time // no repair before this moment
	expects bool      // its gateway can wait for the trainer's half of a check
	told    bool      // it will come up with the newest weights, and has not yet
	lease   string    // hold of an earlier attempt of this block under which it sleeps; empty: none
	backoff
}

var (
	_ sdk.Service[Config] = (*syncer)(nil)
	_ sdk.Updater[Config] = (*syncer)(nil)
)

// Update adopts new values; they count from the next publication on. Values that cannot work are refused, and
// change nothing.
func (s *syncer) Update(ctx context.Context, c Config) error {
	trial, err := c.setup(ctx, s.dir)
	if err != nil {
		return err
	}
	trial.close()
	select {
	case s.updates <- c:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Run moves weights until the context ends.
func (s *syncer) Run(ctx context.Context, req sdk.Request[Config], host sdk.Host) error {
	s.host, s.address, s.dir = host, req.Address, req.Dir
	if err := s.configure(ctx, req.Config); err != nil {
		return err
	}
	defer s.close()
	defer func() { s.wake(ctx, "this block ends") }()
	last, err := restore(req.Dir, req.RunDir)
	if err != nil {
		return err
	}
	if last != nil {
		s.last = last
		s.raise(last.Weights.Version)
	}
	s.raise(req.Policy.Version)
	if err := s.takeCharge(ctx); err != nil {
		return err
	}
	host.Ready(outputs.Sync{Version: s.version.Load(), Transport: string(s.transport)})
	return s.loop(ctx)
}

// takeCharge attaches to the trainer, as often as it takes: it may be starting again. The second failure is reported:
// at the end of a run a trainer may be gone a moment before this block is stopped.
func (s *syncer) takeCharge(ctx context.Context) error {
	known := s.attached // otherwise this block is starting, and not degraded
	s.attached = false
	defer s.waitFor(s.config.Trainer.Address, "it to answer and to accept this block as its sync block")()
	for failures := 0; ; {
		s.repair(ctx) // the trainer must learn the highest version that is served
		err := s.attach(ctx)
		if err == nil {
			s.attached, s.over = true, false
			if known && failures > 1 {
				s.host.Phase(sdk.Ready, "")
			}
			return nil
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if away(err) {
			s.reconcile(ctx, false)
		}
		if errors.Is(err, weightclient.ErrRefused) {
			return fmt.Errorf("attach to %s: %w", s.config.Trainer.Address, err)
		}
		if failures++; failures == 2 {
			s.warn(ctx, "%s: %v", s.config.Trainer.Address, err)
			if known {
				s.host.Phase(sdk.Degraded, s.config.Trainer.Address+" does not answer")
			}
		}
		if err := s.pause(ctx, checkEvery); err != nil {
			return err
		}
	}
}

// attach names which period and transport are wanted, and which version is served.
func (s *syncer) attach(ctx context.Context) error {
	asking, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	lost := s.version.Load() > 0 && s.behind() && (s.last == nil || !s.last.Weights.Transport.Files())
	state, err := s.trainer.Attach(asking, weightserver.Attach{
		Address: s.address, Every: s.config.Every, Transport: s.transport, Version: s.version.Load(), Republish: lost,
		Colocated: s.colocated,
	})
	if err != nil {
		return err
	}
	s.reconcile(ctx, state.Turn)
	s.host.Log("info", fmt.Sprintf("in charge of the weights of %s: step %d, policy version %d, every "+
		"%d steps, transport %s%s",
		s.config.Trainer.Address, state.Step, state.Version, s.config.Every, s.transport,
		map[bool]string{true: "; inference sleeps while it works"}[s.colocated]))
	return nil
}

// behind reports whether an inference block waits for weights that this block does not have.
func (s *syncer) behind() bool {
	for _, v := range s.servers {
		if v.trouble != "" {
			return true
		}
	}
	return false
}

// pause waits, and applies a new configuration meanwhile.
func (s *syncer) pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	case c := <-s.updates:
		return s.configure(ctx, c)
	}
}

// answer is what a question for a pending publication came to.
type answer struct {
	publication *weightserver.Publication
	err         error
}

// loop waits for publications and looks after the inference blocks meanwhile.
func (s *syncer) loop(ctx context.Context) error {
	tick := time.NewTicker(checkEvery)
	defer tick.Stop()
	for {
		asking, stop := context.WithCancel(ctx)
		rested := s.rest()
		answers := s.ask(asking)
		var a answer
		waiting := true
		for waiting {
			select {
			case a = <-answers:
				waiting = false
			case <-tick.C:
				s.repair(ctx)
			case c := <-s.updates:
				stop()
				<-answers
				if err := s.reconfigure(ctx, c); err != nil {
					rested()
					return err
				}
				a, waiting = answer{}, false
			}
		}
		stop()
		rested()
		if err := s.act(ctx, a); err != nil {
			return err
		}
	}
}

// ask puts the question in a goroutine of its own, which ends with its context.
func (s *syncer) ask(ctx context.Context) <-chan answer {
	answers := make(chan answer, 1)
	trainer := s.trainer
	// After 0: one that was offered before and not settled is offered again, for example after a restart of this block.
	go func() {
		ctx, cancel := context.WithTimeout(ctx, pendingWait+callTimeout)
		defer cancel()
		p, err := trainer.Pending(ctx, 0, pendingWait)
		answers <- answer{p, err}
	}()
	return answers
}

// act does what an answer asks for.
func (s *syncer) act(ctx context.Context, a answer) error {
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case errors.Is(a.err, weightclient.ErrOver):
		s.wake(ctx, "the trainer is over")
		s.over = true
		return s.afterwards(ctx)
	case s.over && away(a.err):
		return s.afterwards(ctx) // its process has ended, as it reported before
	case a.err != nil:
		return s.takeCharge(ctx)
	case a.publication != nil && a.publication.Kind == weightserver.TurnWanted:
		return s.giveTurn(ctx, *a.publication)
	case a.publication != nil && a.publication.Kind == weightserver.TurnOver:
		return s.endTurn(ctx, *a.publication)
	case a.publication != nil:
		return s.updateWeights(ctx, *a.publication)
	}
	return s.again(ctx)
}

// afterwards waits when the trainer has done its work: inference keeps its weights until the engine stops this
// block, or starts the trainer again.
func (s *syncer) afterwards(ctx context.Context) error {
	if err := s.pause(ctx, checkEvery); err != nil {
		return err
	}
	return s.again(ctx)
}

// again takes charge of a trainer that does not know this block: one that failed and was started again at the same
// address between two questions looks like the one before, but waits for a sync block to attach.
func (s *syncer) again(ctx context.Context) error {
	asking, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	state, err := s.trainer.State(asking)
	if err != nil || state.Phase == "over" || state.Sync == s.address {
		return nil //nolint:nilerr // the next request reports a peer that does not answer
	}
	return s.takeCharge(ctx)
}

func (s *syncer) reconfigure(ctx context.Context, c Config) error {
	if err := s.configure(ctx, c); err != nil {
		return err
	}
	return s.takeCharge(ctx)
}
