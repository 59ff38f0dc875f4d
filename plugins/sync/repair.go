package sync

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/recipe-rl/recipe/internal/gateway"
	"github.com/recipe-rl/recipe/sdk"
)

// backoff spaces out the repairs of a server that does not recover.
type backoff struct{ wait time.Duration }

const longestBackoff = 30 * time.Second

func (p *backoff) next() time.Duration {
	p.wait = min(max(2*p.wait, checkEvery), longestBackoff)
	return p.wait
}

// repair looks at every inference block and updates those that are behind: a restarted one serves no requests
// before it has the current weights.
func (s *syncer) repair(ctx context.Context) {
	s.notifyTrajectories(ctx)
	if s.unsaved != "" {
		if err := s.saveLast(); err != nil {
			s.host.Log("warn", err.Error())
		}
	}
	before := s.troubles()
	s.each(s.servers, func(v *server) { s.check(ctx, v) })
	s.askAgain(ctx)
	if after := s.troubles(); after != before && s.attached {
		if after == "" {
			s.host.Phase(sdk.Ready, "")
		} else {
			s.host.Phase(sdk.Degraded, after)
		}
	}
}

// askAgain has the trainer publish at its next step, whatever the period says, when weights that are in no file could
// not be brought from its memory.
func (s *syncer) askAgain(ctx context.Context) {
	if !s.attached || s.asked || s.last == nil || s.last.Weights.Transport.Files() || !s.behind() {
		return
	}
	s.asked = true
	if err := s.attach(ctx); err != nil {
		s.host.Log("debug", fmt.Sprintf("ask %s to publish again: %v", s.config.Trainer.Address, err))
	}
}

func (s *syncer) troubles() string {
	var list []string
	if s.unsaved != "" {
		list = append(list, s.unsaved)
	}
	for _, v := range s.servers {
		if v.trouble != "" {
			list = append(list, v.address+": "+v.trouble)
		}
	}
	return strings.Join(list, "; ")
}

// check asks one server and repairs it when it is due.
func (s *syncer) check(ctx context.Context, v *server) {
	asking, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	status, err := v.client.Status(asking)
	if err != nil {
		if ctx.Err() == nil {
			v.trouble = "it does not answer"
		}
		return
	}
	v.expects = status.Expects
	if m := s.mode(); status.Updates != m { // so that it knows before the first update whether answers may span one
		_ = v.client.ExpectUpdates(asking, m) // each update repeats it
	}
	switch {
	case s.asleep != nil:
		s.keepAsleep(ctx, v, status)
		return
	case s.heldByUs(status) && status.Asleep > 0 && !s.attached:
		v.lease = status.Hold.ID // the trainer knows whether it still works
		return
	case s.heldByUs(status):
		_ = v.client.Resume(asking, status.Hold.ID) // an earlier attempt of this block died while it held
	}
	behind := s.outdated(status)
	if behind == "" {
		s.raise(int64(status.Version))
		v.trouble, v.backoff = "", backoff{}
		if v.told && !status.Down {
			s.servesAgain(v)
		}
		return
	}
	v.trouble = behind
	if s.last == nil || time.Now().Before(v.retry) {
		return
	}
	if s.awaited(ctx, v, status) {
		v.trouble, v.backoff = "", backoff{}
		return
	}
	v.retry = time.Now().Add(v.next())
	quiet := s.keepAlive(ctx) // the trainer may wait for this block meanwhile
	err = s.reload(ctx, v, status)
	quiet()
	if err != nil {
		v.trouble = err.Error()
		s.warn(ctx, "%s: bring policy version %d again: %v", v.address, s.version.Load(), err)
		return
	}
	v.trouble, v.backoff = "", backoff{}
	s.servesAgain(v)
}

// servesAgain reports a server that has the newest weights now, and had not when they came.
func (s *syncer) servesAgain(v *server) {
	v.told = false
	s.host.Log("info", fmt.Sprintf("%s serves policy version %d again", v.address, s.version.Load()))
	s.host.Weights(sdk.WeightsInfo{
		Version: s.version.Load(), Path: s.last.Weights.Path, Format: s.last.Weights.Format,
		Transport: s.last.Weights.Transport, Inference: v.address,
	})
}

// heldByUs reports whether the gateway is held by an earlier attempt of this block.
func (s *syncer) heldByUs(status gateway.Status) bool {
	return status.Held && (strings.HasPrefix(status.Hold.Reason, s.address+" brings ") ||
		strings.HasPrefix(status.Hold.Reason, s.address+" leases "))
}

// outdated describes what a gateway lacks; empty when it serves the current version.
func (s *syncer) outdated(status gateway.Status) string {
	if newest := s.version.Load(); int64(status.Version) < newest {
		return fmt.Sprintf("it serves policy version %d, the newest is %d", status.Version, newest)
	}
	for _, r := range status.Replicas {
		if r.Healthy && r.Version != status.Version {
			return fmt.Sprintf("the weights of replica %s are not known", r.ID)
		}
		if !r.Healthy && r.Version < 0 {
			return fmt.Sprintf("replica %s is out: %s", r.ID, r.Reason)
		}
	}
	return ""
}

// raise adopts a version, also one that inference was seen to serve: the engine may have died before it had
// recorded it.
func (s *syncer) raise(version int64) {
	for {
		known := s.version.Load()
		if version <= known || s.version.CompareAndSwap(known, version) {
			return
		}
	}
}

// reload loads the newest weights into one server, and verifies them.
func (s *syncer) reload(ctx context.Context, v *server, status gateway.Status) error {
	ctx, cancel := context.WithTimeout(ctx, s.config.Timeout)
	defer cancel()
	if int64(status.Version) > s.last.Weights.Version {
		return errors.New("the newest weights are in no file; the next publication updates this server")
	}
	if err := s.deliver(ctx, v, s.last.Weights); err != nil {
		return err
	}
	s.reinstate(ctx, v)
	request := s.last.request("")
	request.Mode = s.mode()
	result, err := v.client.UpdateWeights(ctx, request)
	_, failed := inspect(result)
	return errors.Join(err, failed)
}
