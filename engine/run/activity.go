package run

import (
	"context"
	"time"

	"github.com/recipe-rl/recipe/engine/event"
	"github.com/recipe-rl/recipe/engine/usage"
	"github.com/recipe-rl/recipe/sdk"
	"github.com/recipe-rl/recipe/sdk/kind"
)

// The least time between two activity events of one block. There may be hundreds of environments.
const (
	activityGap            = 4 * time.Second
	activityGapEnvironment = 30 * time.Second
)

// recorded is the activity of a block that the log has last.
type recorded struct {
	at                time.Time
	state, on, action string
}

// recordActivity writes down what a block does, when that has changed since the last event. A block that does not
// report its activities has none.
func (s *supervisor) recordActivity(b *blockState) {
	d := &b.activity
	if !d.reports || !d.noAnswerSince.IsZero() {
		return
	}
	now, gap := s.e.now(), activityGap
	if b.addr().Kind == kind.Environment {
		gap = activityGapEnvironment
	}
	state, a := primary(d.activities)
	if !d.recorded.at.IsZero() && (now.Sub(d.recorded.at) < gap ||
		d.recorded.state == state && d.recorded.on == a.On && d.recorded.action == event.WithoutNumbers(a.What)) {
		return
	}
	seconds := 0.0
	if !a.Began.IsZero() {
		seconds = max(0, now.Sub(a.Began).Seconds())
	}
	if !d.recorded.at.IsZero() {
		seconds = min(seconds, now.Sub(d.recorded.at).Seconds())
	}
	d.recorded = recorded{now, state, a.On, event.WithoutNumbers(a.What)}
	s.e.append(event.Event{Type: event.Activity, Address: b.addr().String(), BlockAttempt: int(b.attempts), State: state,
		On: a.On, Message: a.What, Seconds: seconds})
}

// primary is the activity that is shown for the block: own work before waiting, waiting before rest, and of the same
// kind the one that has lasted longest.
func primary(list []sdk.Activity) (state string, found sdk.Activity) {
	state = event.Resting
	rank := map[string]int{event.Resting: 0, event.Waiting: 1, event.Working: 2}
	for i, a := range list {
		its := event.Working
		switch {
		case a.Rest:
			its = event.Resting
		case a.On != "":
			its = event.Waiting
		}
		if i == 0 || rank[its] > rank[state] || its == state && a.Began.Before(found.Began) {
			state, found = its, a
		}
	}
	return state, found
}

// watchMachine writes down how far this machine is used, until the function that it returns is called.
func (e *Engine) watchMachine(ctx context.Context) (stop func()) {
	if e.opts.Usage <= 0 {
		return func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		usage.Watch(ctx, e.opts.Usage, func(m map[string]float64) {
			e.append(event.Event{Type: event.Machine, Metrics: m})
		})
	}()
	return func() { cancel(); <-ended }
}
