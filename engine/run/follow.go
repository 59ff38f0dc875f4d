package run

import (
	"fmt"
	"os"
	"time"

	"github.com/zclconf/go-cty/cty"

	"github.com/recipe-rl/recipe/engine/event"
	"github.com/recipe-rl/recipe/engine/state"
	"github.com/recipe-rl/recipe/sdk"
	"github.com/recipe-rl/recipe/sdk/kind"
)

// phase is a block's new phase, with its outputs when they are known.
func (c *conductor) phase(u *unit, p sdk.Phase, outputs cty.Value) {
	if u.life == nil {
		return
	}
	before := u.outputs
	if outputs != cty.NilVal {
		c.gives(u, outputs)
	}
	if u.phase == p && outputs == cty.NilVal {
		return
	}
	was := u.phase
	u.phase = p
	c.dirty = true
	c.e.note(u.addr(), func(b *state.Block) {
		b.Phase = string(p)
		b.Outputs = storedOutputs(u.outputs, u.block.Schema)
	})
	if (p == sdk.Ready || p == sdk.Degraded) && !u.ready {
		u.ready = true
		c.becameReady(u, was, before)
	}
}

// becameReady checks postconditions, and sees to those who were told of an earlier life's outputs.
func (c *conductor) becameReady(u *unit, _ sdk.Phase, before cty.Value) {
	if u.goal != up {
		return
	}
	if err := c.checks(u, true); err != nil {
		u.err, u.why = err, "a postcondition does not hold"
		c.end(state.Failed, &Failure{Address: u.addr(), Err: err}, err.Error())
		return
	}
	if before == cty.NilVal || before.RawEquals(u.outputs) {
		return
	}
	moved := movedOutputs(before, u.outputs)
	if moved == "" {
		return
	}
	// The block could not come back at the address that others hold: they are started again with the new one.
	for _, d := range c.sorted() {
		if d.life != nil && d.goal == up && needs(d, u.addr()) {
			d.again, d.resume = true, true
			d.why = fmt.Sprintf("%s of %s has changed", moved, u.addr())
			c.e.append(event.Event{Type: event.Restart, Address: d.addr().String(), Message: d.why})
		}
	}
}

// movedOutputs names an address among the outputs that differs: the outputs that others cannot do without.
func movedOutputs(a, b cty.Value) string {
	for _, name := range []string{"base_url", "url", "control_url"} {
		if a.Type().HasAttribute(name) && b.Type().HasAttribute(name) && !a.GetAttr(name).RawEquals(b.GetAttr(name)) {
			return name
		}
	}
	return ""
}

// progress is what a block reported, already in the log.
func (c *conductor) progress(u *unit, ev event.Event) {
	u.doing.sign = c.e.now()
	switch ev.Type {
	case event.Metrics:
		if u.rules != nil {
			c.endByRule(u, u.rules.metrics(ev.Step, ev.Metrics))
		}
	case event.Progress:
		// Kept in memory by readers of the log; the record only needs it now and then.
		if ev.Total > 0 && (ev.Step == ev.Total || ev.Step%10 == 0) {
			c.e.note(u.addr(), func(b *state.Block) { b.Step, b.Total = ev.Step, ev.Total })
		}
	default:
	}
}

func (c *conductor) endByRule(u *unit, why string) {
	if why == "" || u.ruleEnding != "" || u.life == nil {
		return
	}
	u.ruleEnding = why
	c.e.append(event.Event{Type: event.Notice, Address: u.addr().String(), Level: "info", Message: why})
	u.life.stop <- stopOrder{reason: why}
}

// clock looks at what only time decides.
func (c *conductor) clock() {
	if c.e.store.Failed() == nil {
		_ = c.e.log.Flush() // what is due of repeated events
	}
	for _, u := range c.units {
		if u.rules != nil && u.life != nil {
			c.endByRule(u, u.rules.wall(c.e.now()))
		}
	}
	c.watchStalls(c.e.now())
}

// ended is the end of a life: what becomes of the block is decided here.
func (c *conductor) ended(u *unit, end ending) {
	u.cancel()
	u.life, u.doing = nil, doing{}
	c.dirty = true
	end = c.e.clean(end)
	if end.outputs != cty.NilVal {
		c.gives(u, end.outputs)
	}
	if u.ruleEnding != "" && end.phase == sdk.Stopped && end.ordered {
		end.phase = sdk.Completed
	}
	u.phase = end.phase
	switch {
	case u.goal != up || u.again || c.ending != nil:
		c.unclean(u, end)
		c.record(u, end, state.IntentDone)
	case end.phase == sdk.Completed:
		c.record(u, end, state.IntentDone)
	case end.phase == sdk.Stopped && end.ordered:
		c.record(u, end, state.IntentDone)
	default:
		c.failed(u, end)
	}
}

// unclean notes what the stop of a block could not do: write a last checkpoint, for one. It has ended all the same.
func (c *conductor) unclean(u *unit, end ending) {
	if end.err == nil || c.killed {
		return
	}
	if !end.told { // how it failed
		c.e.append(event.Event{Type: event.Notice, Level: "error", Address: u.addr().String(), Message: "it was not stopped in order: " + end.message()})
	}
	if c.ending != nil {
		c.ending.unclean = append(c.ending.unclean, &Failure{Address: u.addr(), Err: end.err, Remedy: end.remedy, Last: end.last})
	}
}

func (c *conductor) record(u *unit, end ending, intent state.Intent) {
	msg := ""
	if end.err != nil {
		msg = c.e.scrub(end.err.Error())
	}
	phase := u.phase
	c.e.note(u.addr(), func(b *state.Block) {
		b.Phase, b.Error, b.Intent, b.Ended = string(phase), msg, intent, c.e.now().UTC()
		b.Outputs = storedOutputs(u.outputs, u.block.Schema)
		b.Restarts = u.history
		if intent == state.IntentDone {
			b.Handle = nil
		}
	})
	if !end.told && (phase == sdk.Completed || phase == sdk.Stopped) {
		c.e.append(event.Event{Type: event.Phase, Address: u.addr().String(), Life: u.number, Phase: string(phase), Message: msg})
	}
}

// failed restarts a block by its policy, or lets the run fail.
func (c *conductor) failed(u *unit, end ending) {
	u.err, u.remedy, u.last = end.err, end.remedy, end.last
	policy := restartPolicy(u.block.Meta.Restart)
	if end.stalled {
		// Each time takes as long as the deadline: a window that is shorter would never use up the attempts.
		h := healthPolicy(u.block.Meta.Health, u.addr().Kind)
		policy.Window = max(policy.Window, 2*h.StallTimeout*time.Duration(policy.Attempts+1))
	}
	v := decideRestart(policy, u.history, c.e.now(), jitter())
	u.history = v.History
	c.record(u, end, state.IntentRun)
	// What a plugin has diagnosed before it was ever ready asks a person for something: trying again cannot mend it. Nor can it
	// mend values that the plugin refuses.
	final := end.remedy != "" && !end.ready || end.invalid
	if final || !v.Restart {
		msg := end.message()
		if !final && policy.Attempts > 0 {
			u.err = fmt.Errorf("%w (after %s within %s)", end.err, restarts(len(v.History)), policy.Window)
		}
		u.phase = sdk.Failed
		if !end.told {
			c.e.append(event.Event{Type: event.Phase, Address: u.addr().String(), Life: u.number, Phase: string(sdk.Failed), Message: msg, Remedy: end.remedy})
		}
		return
	}
	c.e.append(event.Event{Type: event.Restart, Address: u.addr().String(), Life: u.number, Attempt: v.Attempt, Delay: v.Delay.Seconds(), Message: end.message()})
	for _, d := range c.sorted() {
		if d.life != nil && needs(d, u.addr()) {
			c.e.append(event.Event{Type: event.Notice, Address: d.addr().String(), Level: "warn",
				Message: fmt.Sprintf("%s, which it refers to, is being restarted", u.addr())})
		}
	}
	u.phase, u.resume, u.err = sdk.Stopped, true, nil
	a := u.addr()
	u.waiting = time.AfterFunc(v.Delay, func() {
		c.e.do(func(c *conductor) {
			if u := c.units[a]; u != nil && u.waiting != nil {
				u.waiting, u.phase, c.dirty = nil, sdk.Pending, true
			}
		})
	})
}

func restarts(n int) string {
	if n == 1 {
		return "1 restart"
	}
	return fmt.Sprintf("%d restarts", n)
}

// sendUpdate hands changed values to a running block, in the background: the answer comes as a notice.
func (c *conductor) sendUpdate(u *unit) {
	if u.life == nil {
		u.again = true
		return
	}
	value, _, diags := c.recipe.Evaluate(u.addr(), c.known())
	if diags.HasErrors() {
		c.e.notice("error", fmt.Sprintf("updating %s: %v", u.addr(), diagnosticsError(diags)))
		return
	}
	c.e.learn(value)
	l, a, recorded := u.life, u.addr(), u.config
	order := updateOrder{config: timed(value, u.block.Schema, healthPolicy(u.block.Meta.Health, a.Kind)), done: make(chan error, 1)}
	select {
	case l.update <- order:
	default:
		c.e.notice("error", fmt.Sprintf("updating %s: an earlier update is still under way", a))
		return
	}
	go func() {
		select {
		case err := <-order.done:
			c.e.do(func(c *conductor) { c.updated(a, recorded, err) })
		case <-c.e.done:
		}
	}()
}

// setAside moves checkpoints that the block must not resume from out of the way: nothing is lost and nothing is mixed.
func (c *conductor) setAside(u *unit) error {
	from := c.e.opts.Dir.Checkpoints(u.addr())
	entries, err := os.ReadDir(from)
	if err != nil || len(entries) == 0 {
		return nil // there are none
	}
	to := fmt.Sprintf("%s.before-%s", from, c.e.now().UTC().Format("20060102T150405.000"))
	if err := os.Rename(from, to); err != nil {
		return fmt.Errorf("setting its earlier checkpoints aside: %w", err)
	}
	c.e.notice("info", fmt.Sprintf("%s starts from nothing; its earlier checkpoints are in %s", u.addr(), to))
	return nil
}

// forgetProduct drops what is recorded of a replaced block's work.
func (c *conductor) forgetProduct(u *unit) {
	c.gives(u, cty.NilVal)
	c.e.note(u.addr(), func(b *state.Block) { b.Checkpoint, b.Step, b.Outputs, b.Handle = nil, 0, nil, nil })
	if u.addr().Kind == kind.Inference || u.addr().Kind == kind.Trainer {
		// The version goes on rising; the weights recorded for it belong to what was replaced.
		c.e.noteRun(func(r *state.Run) { r.Policy.Weights, r.Policy.Format = "", "" })
	}
}
