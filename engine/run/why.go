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
	"github.com/recipe-rl/recipe/engine/run/lifecycle"
	"github.com/recipe-rl/recipe/engine/state"
	"github.com/recipe-rl/recipe/engine/why"
	"github.com/recipe-rl/recipe/schema/addr"
	"github.com/recipe-rl/recipe/sdk"
	"github.com/recipe-rl/recipe/sdk/kind"
)

// activity is what a block has said that it does. Only the supervisor's goroutine touches it.
type activity struct {
	polled        bool // it has been asked at least once
	reports       bool
	activities    []sdk.Activity
	noAnswerSince time.Time // since when its process does not answer; zero: it does
	lastReport    time.Time // when it last reported
	message       string    // of its phase
	phase         sdk.Phase // as last looked at
	since         time.Time // when it was first seen in that phase
	recorded      recorded
}

// answered takes the answer to a question for the block's status.
func (d *activity) answered(now time.Time, st host.Status, err error) {
	d.polled = true
	switch {
	case err == nil:
		d.reports, d.activities, d.noAnswerSince = st.Reports, st.Activities, time.Time{}
	case d.noAnswerSince.IsZero():
		d.noAnswerSince = now
	}
}

// stalls are the stalled parts of the run, as reported.
type stalls struct {
	checkedAt time.Time
	known     map[addr.Block]*stalling
}

// stalling is one that has been reported.
type stalling struct {
	since      time.Time
	nextReport time.Time // when it is reported again
	pause      time.Duration
	ending     bool // its block is being stopped for it
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
func (s *supervisor) watchStalls(now time.Time) {
	if s.ending != nil || now.Sub(s.stalls.checkedAt) < s.e.stallAfter()/12 {
		return
	}
	s.stalls.checkedAt = now
	if s.stalls.known == nil {
		s.stalls.known = map[addr.Block]*stalling{}
	}
	report := s.explain(now, s.e.stallAfter())
	seen := map[addr.Block]bool{}
	for _, stall := range report.Stalls {
		seen[stall.Root] = true
		s.reportStall(now, stall)
		if s.failIfOverdue(stall); s.ending != nil {
			return
		}
	}
	s.reportStallsOver(now, seen)
}

// reportStallsOver reports the end of the stalls that are not among those seen.
func (s *supervisor) reportStallsOver(now time.Time, seen map[addr.Block]bool) {
	for _, root := range slices.SortedFunc(maps.Keys(s.stalls.known), addr.Compare) {
		if !seen[root] {
			s.e.append(event.Event{Type: event.StallOver, Address: root.String(),
				Seconds: now.Sub(s.stalls.known[root].since).Seconds()})
			delete(s.stalls.known, root)
		}
	}
}

// reportStall writes a line about a stall: the first time, and then less and less often.
func (s *supervisor) reportStall(now time.Time, stall why.Stall) {
	known := s.stalls.known[stall.Root]
	if known == nil {
		known = &stalling{since: now.Add(-stall.Idle), pause: s.e.stallAfter()}
		s.stalls.known[stall.Root] = known
	}
	if now.Before(known.nextReport) {
		return
	}
	known.nextReport = now.Add(known.pause)
	known.pause = min(2*known.pause, longestPause)
	s.e.append(stallEvent(stall))
}

func stallEvent(s why.Stall) event.Event {
	return event.Event{Type: event.Stalled, Address: s.Root.String(), Level: "warn", Message: s.Sentence(),
		Remedy: s.Remedy(), Seconds: s.Idle.Seconds()}
}

// failIfOverdue ends the block at the cause of a stall when it has held up the run for longer than its deadline: its
// restart policy says what comes then.
func (s *supervisor) failIfOverdue(stall why.Stall) {
	b, known := s.blocks[stall.Root], s.stalls.known[stall.Root]
	if b == nil || known.ending || b.Goal != lifecycle.Up || b.Again {
		return
	}
	health := healthPolicy(b.block.Meta.Health, stall.Root.Kind)
	limit := health.StallTimeout
	if limit > 0 && b.Phase == sdk.Degraded {
		limit = max(limit, health.StartTimeout) // its program may be starting again
	}
	if limit <= 0 || stall.Idle < limit {
		return
	}
	err := fmt.Errorf("it has blocked the run for %s (health.stall_timeout is %s): %s", why.Span(stall.Idle), limit,
		stall.Sentence())
	remedy := stall.Remedy()
	switch {
	case b.HasProcess():
		known.ending = true
		b.attempt.fail <- failOrder{err: err, remedy: remedy}
	case b.Stage == lifecycle.Checked:
		known.ending = true
		s.externalPhase(stall.Root, sdk.Failed, s.e.scrub(err.Error()))
	case b.Phase.Over():
		s.end(state.Failed, &Failure{Address: stall.Root, Err: err, Remedy: remedy}, err.Error())
	}
}

// reportStallsAtEnd writes down what the run waits for when it ends before its work is done: there is nobody to ask
// afterwards.
func (s *supervisor) reportStallsAtEnd(status state.Status) {
	now, seen := s.e.now(), map[addr.Block]bool{}
	if status != state.Completed {
		for _, stall := range s.explain(now, s.e.stallAfter()).Stalls {
			seen[stall.Root] = true
			s.e.append(stallEvent(stall))
		}
	}
	s.reportStallsOver(now, seen)
}

// snapshot is the run as it is now.
func (s *supervisor) snapshot(now time.Time, after time.Duration) why.Input {
	in := why.Input{Now: now, After: after}
	for _, b := range s.sorted() {
		seen := why.Block{
			Address: b.addr(), Name: registeredName(b), Phase: b.Phase, Message: b.activity.message,
			Reports: b.activity.reports, External: b.Stage == lifecycle.Checked,
			Activities: b.activity.activities, Sign: b.activity.lastReport, Silent: b.activity.noAnswerSince,
		}
		switch {
		case b.Stage == lifecycle.Delayed:
			seen.Phase = sdk.Pending // it is started again in a moment
		case b.HasProcess() && !b.activity.polled:
			seen.Phase = sdk.Starting // nothing is known of it yet, as of one that was just taken over
		}
		if b.activity.phase != seen.Phase || b.activity.since.IsZero() {
			b.activity.phase, b.activity.since = seen.Phase, now
		}
		seen.Since = b.activity.since
		if b.Stage != lifecycle.Delayed && (seen.Phase == sdk.Pending || inStage(seen.Phase)) {
			seen.Needs = s.unmet(b)
		}
		in.Blocks = append(in.Blocks, seen)
	}
	return in
}

// unmet are the blocks that must be further before u starts.
func (s *supervisor) unmet(b *blockState) (out []addr.Block) {
	for _, n := range b.block.Needs {
		if on := s.blocks[n.On]; on != nil && (on.Again || !on.reached(n.Condition)) {
			out = append(out, n.On)
		}
	}
	return out
}

// registeredName is the name under which an environment registers with the trajectory API.
func registeredName(b *blockState) string {
	if b.addr().Kind != kind.Environment || b.outputs == cty.NilVal || !b.outputs.Type().IsObjectType() ||
		!b.outputs.Type().HasAttribute("name") {
		return ""
	}
	v, _ := b.outputs.GetAttr("name").Unmark()
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

// Why describes what every block does and what the run waits for. It asks all of them.
func (e *Engine) Why(ctx context.Context, req WhyRequest) (*why.Document, error) {
	attempts := map[addr.Block]*attempt{}
	if err := e.ask(ctx, func(s *supervisor) error {
		for a, b := range s.blocks {
			if b.HasProcess() {
				attempts[a] = b.attempt
			}
		}
		return nil
	}); err != nil {
		return nil, err
	}
	answers := e.askAll(ctx, attempts)
	after := req.After
	if after <= 0 {
		after = e.stallAfter()
	}
	var doc *why.Document
	err := e.ask(ctx, func(s *supervisor) error {
		now := e.now()
		for a, got := range answers {
			if b := s.blocks[a]; b != nil && b.attempt == attempts[a] {
				b.activity.answered(now, got.status, got.err)
			}
		}
		doc = s.explain(now, after).Document(now, after)
		return nil
	})
	if err == nil && req.Stacks {
		doc.Stacks = e.stacks(ctx, doc, attempts)
	}
	return doc, err
}

// askStacks bounds how long a block may take to say where its programs are: they are asked one after the other.
const askStacks = 40 * time.Second

// stacks asks the blocks at the causes; all blocks when nothing stands still, because then a person wants to see for
// himself.
func (e *Engine) stacks(ctx context.Context, doc *why.Document, attempts map[addr.Block]*attempt) []why.Stack {
	var ask []addr.Block
	for _, s := range doc.Stalls {
		ask = append(ask, s.Root)
	}
	if len(ask) == 0 {
		ask = slices.Collect(maps.Keys(attempts))
	}
	slices.SortFunc(ask, addr.Compare)
	ctx, cancel := context.WithTimeout(ctx, askStacks)
	defer cancel()
	found := make([][]why.Stack, len(ask))
	var wg sync.WaitGroup
	for i, a := range ask {
		at := attempts[a]
		if at == nil || at.proc.Load() == nil {
			continue
		}
		wg.Go(func() {
			list, err := (*at.proc.Load()).Stacks(ctx)
			if err != nil {
				found[i] = []why.Stack{{Address: a, Program: "plugin", PID: (*at.proc.Load()).PID(),
					Error: e.scrub(err.Error())}}
			}
			for _, s := range list {
				found[i] = append(found[i], why.Stack{Address: a, Program: s.Program, PID: s.PID, Text: e.scrub(s.Text),
					Error: e.scrub(s.Error)})
			}
		})
	}
	wg.Wait()
	return slices.Concat(found...)
}

// askAll asks blocks for their status, side by side.
func (e *Engine) askAll(ctx context.Context, attempts map[addr.Block]*attempt) map[addr.Block]statusAnswer {
	ctx, cancel := context.WithTimeout(ctx, askEach)
	defer cancel()
	answers := map[addr.Block]statusAnswer{}
	var mu sync.Mutex
	var wg sync.WaitGroup
	for a, at := range attempts {
		p := at.proc.Load()
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
