package run

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/zclconf/go-cty/cty"

	"github.com/recipe-rl/recipe/engine/event"
	"github.com/recipe-rl/recipe/engine/host"
	"github.com/recipe-rl/recipe/engine/state"
	"github.com/recipe-rl/recipe/engine/why"
	"github.com/recipe-rl/recipe/schema/addr"
	"github.com/recipe-rl/recipe/sdk"
	"github.com/recipe-rl/recipe/sdk/kind"
)

// doing is what a block has said that it does. Only the conductor's goroutine touches it.
type doing struct {
	asked      bool // it has been asked at least once
	reports    bool
	activities []sdk.Activity
	silent     time.Time // since when its process does not answer; zero: it does
	sign       time.Time // when it last told anything
	message    string    // of its phase
	phase      sdk.Phase // as last looked at
	since      time.Time // when it was first seen in that phase
}

// answered takes the answer to a question for the block's status.
func (d *doing) answered(now time.Time, st host.Status, err error) {
	d.asked = true
	switch {
	case err == nil:
		d.reports, d.activities, d.silent = st.Reports, st.Activities, time.Time{}
	case d.silent.IsZero():
		d.silent = now
	}
}

// stalls are the parts of the run that stand still, as they have been told.
type stalls struct {
	looked time.Time
	known  map[addr.Block]*stalling
}

// stalling is one that has been told.
type stalling struct {
	since  time.Time
	again  time.Time // when it is told again
	pause  time.Duration
	ending bool // its block has been told to end for it
}

// longestPause bounds the time between two lines about the same stall.
const longestPause = time.Hour

// stallAfter is how long nothing may come of an edge before it is said.
func (e *Engine) stallAfter() time.Duration {
	if e.opts.Stall > 0 {
		return e.opts.Stall
	}
	return why.DefaultAfter
}

// watchStalls looks for parts of the run that stand still, says so, and ends their cause when its deadline has passed.
func (c *conductor) watchStalls(now time.Time) {
	if c.ending != nil || now.Sub(c.stalls.looked) < c.e.stallAfter()/12 {
		return
	}
	c.stalls.looked = now
	if c.stalls.known == nil {
		c.stalls.known = map[addr.Block]*stalling{}
	}
	report := why.Explain(c.picture(now, c.e.stallAfter()))
	seen := map[addr.Block]bool{}
	for _, s := range report.Stalls {
		seen[s.Root] = true
		c.tell(now, s)
		if c.overdue(s); c.ending != nil {
			return
		}
	}
	c.over(now, seen)
}

// over says of the stalls that are not among those seen that they are over.
func (c *conductor) over(now time.Time, seen map[addr.Block]bool) {
	for _, root := range slices.SortedFunc(maps.Keys(c.stalls.known), compareAddresses) {
		if !seen[root] {
			c.e.append(event.Event{Type: event.StallOver, Address: root.String(), Seconds: now.Sub(c.stalls.known[root].since).Seconds()})
			delete(c.stalls.known, root)
		}
	}
}

func compareAddresses(a, b addr.Block) int {
	switch {
	case addr.Less(a, b):
		return -1
	case addr.Less(b, a):
		return 1
	}
	return 0
}

// tell writes a line about a stall: the first time, and then less and less often.
func (c *conductor) tell(now time.Time, s why.Stall) {
	known := c.stalls.known[s.Root]
	if known == nil {
		known = &stalling{since: now.Add(-s.Idle), pause: c.e.stallAfter()}
		c.stalls.known[s.Root] = known
	}
	if now.Before(known.again) {
		return
	}
	known.again = now.Add(known.pause)
	known.pause = min(2*known.pause, longestPause)
	c.e.append(stallEvent(s))
}

func stallEvent(s why.Stall) event.Event {
	return event.Event{Type: event.Stalled, Address: s.Root.String(), Level: "warn", Message: s.Sentence(), Remedy: s.Remedy(), Seconds: s.Idle.Seconds()}
}

// overdue ends the block at the cause of a stall when it has held up the run for longer than its deadline: its restart policy says
// what comes then.
func (c *conductor) overdue(s why.Stall) {
	u, known := c.units[s.Root], c.stalls.known[s.Root]
	if u == nil || known.ending || u.goal != up || u.again {
		return
	}
	health := healthPolicy(u.block.Meta.Health, s.Root.Kind)
	limit := health.StallTimeout
	if limit > 0 && u.phase == sdk.Degraded {
		limit = max(limit, health.StartTimeout) // its program may be starting again
	}
	if limit <= 0 || s.Idle < limit {
		return
	}
	err := fmt.Errorf("it has held up the run for %s (health.stall_timeout is %s): %s", why.Span(s.Idle), limit, s.Sentence())
	remedy := s.Remedy()
	switch {
	case u.life != nil:
		known.ending = true
		u.life.fail <- failOrder{err: err, remedy: remedy}
	case u.checks != nil:
		known.ending = true
		c.externalPhase(s.Root, sdk.Failed, c.e.scrub(err.Error()))
	case u.phase.Over():
		c.end(state.Failed, &Failure{Address: s.Root, Err: err, Remedy: remedy}, err.Error())
	}
}

// lastWords writes down what the run waits for when it ends before its work is done: there is nobody to ask afterwards.
func (c *conductor) lastWords(status state.Status) {
	now, seen := c.e.now(), map[addr.Block]bool{}
	if status != state.Completed {
		for _, s := range why.Explain(c.picture(now, c.e.stallAfter())).Stalls {
			seen[s.Root] = true
			c.e.append(stallEvent(s))
		}
	}
	c.over(now, seen)
}

// picture is the run as it is now.
func (c *conductor) picture(now time.Time, after time.Duration) why.Input {
	in := why.Input{Now: now, After: after}
	for _, u := range c.sorted() {
		b := why.Block{
			Address: u.addr(), Name: registeredName(u), Phase: u.phase, Message: u.doing.message, Reports: u.doing.reports, External: u.checks != nil,
			Activities: u.doing.activities, Sign: u.doing.sign, Silent: u.doing.silent,
		}
		switch {
		case u.waiting != nil:
			b.Phase = sdk.Pending // it is started again in a moment
		case u.life != nil && !u.doing.asked:
			b.Phase = sdk.Starting // nothing is known of it yet, as of one that was just taken over
		}
		if u.doing.phase != b.Phase || u.doing.since.IsZero() {
			u.doing.phase, u.doing.since = b.Phase, now
		}
		b.Since = u.doing.since
		if b.Phase == sdk.Pending && u.waiting == nil {
			b.Needs = c.unmet(u)
		}
		in.Blocks = append(in.Blocks, b)
	}
	return in
}

// unmet are the blocks that must be further before u starts.
func (c *conductor) unmet(u *unit) (out []addr.Block) {
	for _, n := range u.block.Needs {
		if on := c.units[n.On]; on != nil && (on.again || !on.reached(n.Condition)) {
			out = append(out, n.On)
		}
	}
	return out
}

// registeredName is the name under which an environment registers with the trajectory API.
func registeredName(u *unit) string {
	if u.addr().Kind != kind.Environment || u.outputs == cty.NilVal || !u.outputs.Type().IsObjectType() || !u.outputs.Type().HasAttribute("name") {
		return ""
	}
	v, _ := u.outputs.GetAttr("name").Unmark()
	if !v.IsKnown() || v.IsNull() || v.Type() != cty.String {
		return ""
	}
	return v.AsString()
}

// askEach bounds how long a block may take to say what it does when a person asks.
const askEach = 3 * time.Second

// WhyRequest is how a person asks what a run waits for.
type WhyRequest struct {
	After  time.Duration `json:"after,omitempty"`  // how long nothing may come of an edge; 0: the engine's own measure
	Stacks bool          `json:"stacks,omitempty"` // also where the programs at the cause are
}

// Why says what every block does and what the run waits for. It asks all of them.
func (e *Engine) Why(ctx context.Context, req WhyRequest) (*why.Document, error) {
	lives := map[addr.Block]*life{}
	if err := e.ask(ctx, func(c *conductor) error {
		for a, u := range c.units {
			if u.life != nil {
				lives[a] = u.life
			}
		}
		return nil
	}); err != nil {
		return nil, err
	}
	answers := e.askAll(ctx, lives)
	after := req.After
	if after <= 0 {
		after = e.stallAfter()
	}
	var doc *why.Document
	err := e.ask(ctx, func(c *conductor) error {
		now := e.now()
		for a, got := range answers {
			if u := c.units[a]; u != nil && u.life == lives[a] {
				u.doing.answered(now, got.status, got.err)
			}
		}
		doc = why.Explain(c.picture(now, after)).Document(now, after)
		return nil
	})
	if err == nil && req.Stacks {
		doc.Stacks = e.stacks(ctx, doc, lives)
	}
	return doc, err
}

// askStacks bounds how long a block may take to say where its programs are: they are asked one after the other.
const askStacks = 40 * time.Second

// stacks asks the blocks at the causes; all blocks when nothing stands still, because then a person wants to see for himself.
func (e *Engine) stacks(ctx context.Context, doc *why.Document, lives map[addr.Block]*life) []why.Stack {
	var ask []addr.Block
	for _, s := range doc.Stalls {
		ask = append(ask, s.Root)
	}
	if len(ask) == 0 {
		ask = slices.Collect(maps.Keys(lives))
	}
	slices.SortFunc(ask, compareAddresses)
	ctx, cancel := context.WithTimeout(ctx, askStacks)
	defer cancel()
	found := make([][]why.Stack, len(ask))
	var wg sync.WaitGroup
	for i, a := range ask {
		l := lives[a]
		if l == nil || l.proc.Load() == nil {
			continue
		}
		wg.Go(func() {
			list, err := (*l.proc.Load()).Stacks(ctx)
			if err != nil {
				found[i] = []why.Stack{{Address: a, Program: "plugin", PID: (*l.proc.Load()).PID(), Error: e.scrub(err.Error())}}
			}
			for _, s := range list {
				found[i] = append(found[i], why.Stack{Address: a, Program: s.Program, PID: s.PID, Text: e.scrub(s.Text), Error: e.scrub(s.Error)})
			}
		})
	}
	wg.Wait()
	return slices.Concat(found...)
}

// askAll asks blocks for their status, side by side.
func (e *Engine) askAll(ctx context.Context, lives map[addr.Block]*life) map[addr.Block]statusAnswer {
	ctx, cancel := context.WithTimeout(ctx, askEach)
	defer cancel()
	answers := map[addr.Block]statusAnswer{}
	var mu sync.Mutex
	var wg sync.WaitGroup
	for a, l := range lives {
		p := l.proc.Load()
		if p == nil {
			continue
		}
		wg.Go(func() {
			st, err := (*p).Status(ctx)
			mu.Lock()
			defer mu.Unlock()
			answers[a] = statusAnswer{st, err}
		})
	}
	wg.Wait()
	return answers
}
