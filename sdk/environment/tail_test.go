package environment

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/zclconf/go-cty/cty"
)

// paced is a roller whose groups take as long as it is set to.
type paced struct{ takes time.Duration }

func (p paced) next(context.Context) (Task, error) { return Task{}, nil }

func (p paced) roll(ctx, _ context.Context, _ Task, _ sampling, _ limits) (*rolled, error) {
	select {
	case <-time.After(p.takes):
		return nil, errors.New("done") // the group need not be posted here
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func TestASlowGroupIsEndedWhileOthersAreDone(t *testing.T) {
	for name, c := range map[string]struct {
		factor  float64
		others  int           // groups that are done meanwhile
		each    time.Duration // that they take
		ended   bool
		atLeast time.Duration
	}{
		"five times the median":       {5, 40, 2 * time.Second, true, 10 * time.Second},
		"not set":                     {0, 40, 2 * time.Second, false, time.Minute},
		"nothing else is done":        {5, 0, 0, false, time.Minute},
		"few others are done":         {5, tailLeast - 1, time.Second, false, time.Minute},
		"all have waited for a while": {5, 40, 20 * time.Second, false, time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := &rollouts{roller: paced{time.Minute}, stats: newRolloutStats(), place: &place{open: map[int64]bool{}},
					rates: &rates{kept: &SolveRates{}}}
				r.settings.MaxTail = c.factor
				began := time.Now()
				var others sync.WaitGroup
				others.Go(func() {
					for range c.others {
						time.Sleep(c.each / 4) // four at a time
						r.tail.done(c.each)
					}
				})
				defer others.Wait()
				o := r.group(t.Context(), t.Context(), nil, receiver{})
				took := time.Since(began)
				if o.slow != c.ended || took < c.atLeast || c.ended && took > c.atLeast+2*tailLook {
					t.Errorf("ended %v after %s (%+v), want %v after %s", o.slow, took, o, c.ended, c.atLeast)
				}
				if c.ended && r.stats.counts.late != 1 {
					t.Errorf("counted %v, want 1", r.stats.counts.late)
				}
			})
		})
	}
}

// A group that the block's end cuts off is not counted as slow.
func TestTheEndOfTheBlockIsNoTail(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var times tail
		for range tailMost {
			times.done(time.Second)
		}
		ctx, cancel := context.WithCancel(t.Context())
		bound, end := times.bound(ctx, 5)
		defer end()
		cancel()
		<-bound.Done()
		if errors.Is(context.Cause(bound), errTail) {
			t.Error("its cause is max_tail")
		}
	})
}

func TestMediansOfGroups(t *testing.T) {
	var times tail
	if middle, most := times.take(); middle != 0 || most != 0 {
		t.Errorf("%s and %s without a group", middle, most)
	}
	for _, n := range rand.Perm(101) {
		times.done(time.Duration(n) * time.Second)
	}
	if middle, most := times.take(); middle != 50*time.Second || most != 100*time.Second {
		t.Errorf("median %s and greatest %s, want 50 s and 100 s", middle, most)
	}
	if _, most := times.take(); most != 0 {
		t.Errorf("the times of an earlier report come again: %s", most)
	}
}

func TestATailBelowTheMedianIsRefused(t *testing.T) {
	for name, c := range map[string]struct {
		tail    float64
		refused bool
	}{
		"none": {0, false}, "a half": {.5, true}, "once": {1, true}, "twice": {2, false},
	} {
		refused := false
		for _, p := range (*runner[Settings, Environment]).Validate(nil, Settings{GroupSize: 2, MaxTail: c.tail}) {
			refused = refused || p.Path.Equals(cty.GetAttrPath("max_tail"))
		}
		if refused != c.refused {
			t.Errorf("%s: refused %v, want %v", name, refused, c.refused)
		}
	}
}
