package run

import (
	"fmt"
	"time"

	"github.com/zclconf/go-cty/cty"

	"github.com/recipe-rl/recipe/engine/event"
	"github.com/recipe-rl/recipe/engine/run/lifecycle"
	"github.com/recipe-rl/recipe/engine/state"
	"github.com/recipe-rl/recipe/sdk"
	"github.com/recipe-rl/recipe/sdk/kind"
)

// phase is a block's new phase, with its outputs when they are known.
func (s *supervisor) phase(b *blockState, p sdk.Phase, outputs cty.Value) {
	was := b.State
	if !s.move(b, lifecycle.Reported{Phase: p}) {
		return
	}
	if outputs != cty.NilVal {
		s.setOutputs(b, outputs)
		s.noteBest(b)
		s.dirty = true
	} else if was.Phase == p {
		return
	}
	s.e.note(b.addr(), func(rec *state.Block) {
		rec.Phase = string(p)
		rec.Outputs = s.e.storedOutputs(b.outputs, b.block.Schema)
	})
	if b.Ready && !was.Ready {
		s.evaluations.wake()
		s.becameReady(b)
	}
}

// becameReady checks postconditions, and restarts the blocks that have outdated addresses or tokens of this one.
func (s *supervisor) becameReady(b *blockState) {
	if b.Goal != lifecycle.Up {
		return
	}
	if err := s.checkConditions(b, true); err != nil {
		b.err, b.reason = err, "a postcondition failed"
		s.end(state.Failed, &Failure{Address: b.addr(), Err: err}, err.Error())
		return
	}
	told := b.told
	b.told = b.outputs
	moved := movedOutputs(told, b.outputs)
	if rec := s.e.store.Block(b.addr()); rec != nil && rec.Renewed {
		if moved == "" {
			moved = "the token"
		}
		s.e.note(b.addr(), func(rec *state.Block) { rec.Renewed = false })
	}
	if moved == "" {
		return
	}
	for _, d := range s.sorted() {
		if d.WasStarted() && d.Goal == lifecycle.Up && needs(d, b.addr()) {
			s.move(d, lifecycle.Restarted{})
			d.reason = fmt.Sprintf("%s of %s has changed", moved, b.addr())
			s.e.append(event.Event{Type: event.Restart, Address: d.addr().String(), Message: d.reason})
		}
	}
}

// movedOutputs names an address among the outputs that differs: the outputs that others cannot do without. Empty: none.
func movedOutputs(a, b cty.Value) string {
	if a == cty.NilVal || b == cty.NilVal {
		return ""
	}
	for _, name := range []string{"base_url", "url", "control_url"} {
		if a.Type().HasAttribute(name) && b.Type().HasAttribute(name) && !a.GetAttr(name).IsNull() &&
			!a.GetAttr(name).RawEquals(b.GetAttr(name)) {
			return name
		}
	}
	return ""
}

// progress is what a block reported, already in the log.
func (s *supervisor) progress(b *blockState, ev event.Event) {
	b.activity.lastReport = s.e.now()
	switch ev.Type {
	case event.Metrics:
		if b.rules != nil {
			s.endByRule(b, b.rules.metrics(ev.Step, ev.Metrics))
			for _, message := range b.rules.absent() {
				s.e.append(event.Event{Type: event.Notice, Address: b.addr().String(), Level: "warn", Message: message})
			}
		}
	case event.Progress:
		// Kept in memory by readers of the log; the record only needs it now and then.
		if ev.Total > 0 && (ev.Step == ev.Total || ev.Step%10 == 0) {
			s.e.note(b.addr(), func(rec *state.Block) { rec.Step, rec.Total = ev.Step, ev.Total })
		}
	case event.Weights:
		s.evaluations.wake()
	default:
	}
}

func (s *supervisor) endByRule(b *blockState, why string) {
	if why == "" || !s.orderStop(b, why) {
		return
	}
	b.ruleEnding = why
	s.e.append(event.Event{Type: event.Notice, Address: b.addr().String(), Level: "info", Message: why})
}

// onTick looks at what only time decides.
func (s *supervisor) onTick() {
	if s.e.store.Failed() == nil {
		_ = s.e.log.Flush() // what is due of repeated events
	}
	s.e.Heal()
	for _, b := range s.blocks {
		if b.rules != nil && b.HasProcess() {
			s.endByRule(b, b.rules.wall(s.e.now()))
		}
	}
	s.noteEngineGap(s.e.now())
	s.watchStalls(s.e.now())
	s.sendPauses()
	s.noteOutputs()
}

// ended handles the end of an attempt: it decides what happens to the block.
func (s *supervisor) ended(b *blockState, end ending) {
	b.cancel()
	b.attempt, b.memoryTaken, b.activity = nil, false, activity{}
	s.dirty = true
	end = s.e.clean(end)
	if end.outputs != cty.NilVal {
		s.setOutputs(b, end.outputs)
	}
	if b.ruleEnding != "" && end.phase == sdk.Stopped && end.ordered {
		end.phase = sdk.Completed
	}
	switch {
	case b.Goal != lifecycle.Up || b.Again:
		s.unclean(b, end)
		s.exited(b, end)
	case end.phase == sdk.Completed || end.phase == sdk.Stopped && end.ordered:
		s.exited(b, end)
	default:
		s.failed(b, end)
	}
	if b.Over() {
		s.e.listeners.drop(b.addr())
	}
}

// unclean notes what the stop of a block could not do: write a last checkpoint, for one. It has ended all the same.
func (s *supervisor) unclean(b *blockState, end ending) {
	if end.err == nil || s.killed {
		return
	}
	if !end.logged { // how it failed
		s.e.append(event.Event{Type: event.Notice, Level: "error", Address: b.addr().String(),
			Message: "it did not stop cleanly: " + end.message()})
	}
	if s.ending != nil {
		s.ending.unclean = append(s.ending.unclean, &Failure{Address: b.addr(), Err: end.err, Remedy: end.remedy,
			Last: end.last})
	}
}

// exited is the end of a process that is not to run on.
func (s *supervisor) exited(b *blockState, end ending) {
	s.record(b, end, state.IntentDone)
	s.move(b, lifecycle.Exited{Phase: end.phase})
}

func (s *supervisor) record(b *blockState, end ending, intent state.Intent) {
	msg := ""
	if end.err != nil {
		msg = s.e.scrub(end.err.Error())
	}
	phase, endedBy := end.phase, b.ruleEnding
	if phase != sdk.Completed {
		endedBy = ""
	}
	s.e.note(b.addr(), func(rec *state.Block) {
		rec.EndedBy = endedBy
		rec.Phase, rec.Error, rec.Intent, rec.Ended = string(phase), msg, intent, s.e.now().UTC()
		rec.Outputs = s.e.storedOutputs(b.outputs, b.block.Schema)
		rec.Restarts = b.history
		if intent == state.IntentDone {
			rec.Handle = nil
		}
	})
	if !end.logged && (phase == sdk.Completed || phase == sdk.Stopped) {
		s.e.append(event.Event{Type: event.Phase, Address: b.addr().String(), BlockAttempt: b.attempts,
			Phase: string(phase), Message: msg})
	}
}

// failed restarts a block by its policy, or lets the run fail.
func (s *supervisor) failed(b *blockState, end ending) {
	b.err, b.remedy, b.last = end.err, end.remedy, end.last
	policy := restartPolicy(b.block.Meta.Restart)
	if end.stalled {
		// Each time takes as long as the deadline: a window that is shorter would never use up the attempts.
		h := healthPolicy(b.block.Meta.Health, b.addr().Kind)
		policy.Window = max(policy.Window, 2*h.StallTimeout*time.Duration(policy.Attempts+1))
	}
	v := decideRestart(policy, b.history, s.e.now(), jitter())
	b.history = v.History
	s.record(b, end, state.IntentRun)
	// What a plugin has diagnosed before it was ever ready asks a person for something: a retry cannot fix it.
	// Nor can it fix values that the plugin refuses, or what the plugin calls final.
	final := end.remedy != "" && !end.ready || end.invalid || end.final
	if final || !v.Restart {
		msg := end.message()
		if !final && policy.Attempts > 0 {
			b.err = fmt.Errorf("%w (after %s within %s)", end.err, restarts(len(v.History)), policy.Window)
		}
		s.move(b, lifecycle.Exited{Phase: sdk.Failed})
		if !end.logged {
			s.e.append(event.Event{Type: event.Phase, Address: b.addr().String(), BlockAttempt: b.attempts,
				Phase: string(sdk.Failed), Message: msg, Remedy: end.remedy})
		}
		return
	}
	s.e.append(event.Event{Type: event.Restart, Address: b.addr().String(), BlockAttempt: b.attempts,
		Attempt: v.Attempt, Delay: v.Delay.Seconds(), Message: end.message()})
	for _, d := range s.sorted() {
		if d.WasStarted() && needs(d, b.addr()) {
			s.e.append(event.Event{Type: event.Notice, Address: d.addr().String(), Level: "warn",
				Message: fmt.Sprintf("%s, which it refers to, is restarting", b.addr())})
		}
	}
	s.move(b, lifecycle.Retried{})
	b.err = nil
	b.restartTimer = time.AfterFunc(v.Delay, func() {
		s.e.do(func(s *supervisor) { s.move(b, lifecycle.DelayOver{}) })
	})
}

func restarts(n int) string {
	if n == 1 {
		return "1 restart"
	}
	return fmt.Sprintf("%d restarts", n)
}

// sendUpdate hands changed values to a running block, in the background: the answer comes as a notice.
func (s *supervisor) sendUpdate(b *blockState) {
	if b.IsPreparing() {
		return // its start has them
	}
	if !b.HasProcess() {
		s.move(b, lifecycle.Restarted{})
		return
	}
	if rec := s.e.store.Block(b.addr()); rec != nil && onlyRules(rec.Config, b.config) {
		s.updated(b.addr(), b.config, nil) // the plugin knows nothing of them
		return
	}
	value, _, diags := s.recipe.Evaluate(b.addr(), s.valuesFor(b))
	if diags.HasErrors() {
		s.e.notice("error", fmt.Sprintf("update %s: %v", b.addr(), diagnosticsError(diags)))
		return
	}
	s.e.addSecretsIn(value)
	at, a, recorded := b.attempt, b.addr(), b.config
	order := updateOrder{config: timed(value, b.block.Schema, healthPolicy(b.block.Meta.Health, a.Kind)),
		done: make(chan error, 1)}
	select {
	case at.update <- order:
	default:
		s.e.notice("error", fmt.Sprintf("update %s: an earlier update is in progress", a))
		return
	}
	go func() {
		select {
		case err := <-order.done:
			s.e.do(func(s *supervisor) { s.updated(a, recorded, err) })
		case <-s.e.done:
		}
	}()
}

// setAside moves checkpoints that the block must not resume from out of the way: nothing is lost and nothing is mixed.
func (s *supervisor) setAside(b *blockState) error {
	to, err := s.e.opts.Dir.SetAside(b.addr(), s.e.now())
	if err != nil || to == "" {
		return err
	}
	s.e.notice("info", fmt.Sprintf("%s starts from the beginning; its earlier checkpoints are in %s", b.addr(), to))
	return nil
}

// forgetProduct drops what is recorded of a replaced block's work.
func (s *supervisor) forgetProduct(b *blockState) {
	s.setOutputs(b, cty.NilVal)
	s.e.note(b.addr(), func(rec *state.Block) {
		rec.Checkpoint, rec.Best, rec.Step, rec.Outputs, rec.Handle = nil, nil, 0, nil, nil
	})
	if b.addr().Kind == kind.Inference || b.addr().Kind == kind.Trainer {
		// The version keeps rising; the weights recorded for it belong to what was replaced.
		s.e.noteRun(func(r *state.Run) { r.Policy.Weights, r.Policy.Format = "", "" })
	}
}
