package run

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/zclconf/go-cty/cty"

	"github.com/recipe-rl/recipe/engine/host"
	"github.com/recipe-rl/recipe/engine/run/lifecycle"
	"github.com/recipe-rl/recipe/engine/state"
	"github.com/recipe-rl/recipe/schema"
	"github.com/recipe-rl/recipe/schema/decode"
	"github.com/recipe-rl/recipe/sdk"
	"github.com/recipe-rl/recipe/sdk/kind"
)

// A block whose plugin offers it is prepared while what it refers to starts: its process is launched and told what is
// known already, so that independent work is done side by side. It is started, in the same process, when its needs are
// far enough. In a run with jobs none is: an allocation that waits costs, and addresses are made at the start.

// mayPrepare reports whether a block that may not start yet is to be prepared. Not when the recipe orders it to wait
// (depends_on), and not when its turn may be hours away: it would hold memory meanwhile.
func (s *supervisor) mayPrepare(b *blockState) bool {
	p := b.block.Schema
	return p != nil && p.Prepares && !s.anyPlaced() && b.block.Meta.External == nil && b.block.Mock == cty.NilVal &&
		!b.unprepared && s.soon(b)
}

// soon reports whether everything that a block still needs is on its way.
func (s *supervisor) soon(b *blockState) bool {
	for _, n := range b.block.Needs {
		on := s.blocks[n.On]
		switch {
		case on == nil || on.Goal != lifecycle.Up:
			return false
		case on.reached(n.Condition) && !on.Again:
		case n.Attribute == "depends_on" || n.Condition == schema.Completed:
			return false
		case on.WasStarted() || on.Stage == lifecycle.Checked:
		case on.Phase.Over() || !s.soon(on):
			return false
		}
	}
	return true
}

// prepare begins an attempt of a block with its preparation. What is wrong with the block is said at its start, when
// everything is known.
func (s *supervisor) prepare(b *blockState) {
	value, meta, secrets, err := s.evaluate(b)
	if err != nil {
		b.unprepared = true
		return
	}
	s.dirty = true
	req, err := s.request(b, value, meta)
	if err != nil {
		s.cannotStart(b, err)
		return
	}
	req.Sensitive = append(secrets, req.Token, req.ControlToken)
	s.begin(b, req, true)
}

// mayGoOn says whether a block that is prepared on accelerators that it shares may use what is left of their memory:
// each inference block on them has taken its part, or answers.
func (s *supervisor) mayGoOn(b *blockState) bool {
	if !b.attempt.request.SharesDevices {
		return false
	}
	for _, o := range s.sharers(b) {
		if o.addr().Kind == kind.Inference && !o.memoryTaken && !o.reached(schema.Healthy) {
			return false
		}
	}
	return true
}

// startPrepared starts a block that was prepared, with what is known now.
func (s *supervisor) startPrepared(b *blockState) {
	s.move(b, lifecycle.Started{})
	value, meta, secrets, err := s.evaluate(b)
	if err != nil {
		b.attempt.fail <- failOrder{err: errors.New(s.e.scrub(err.Error())), final: true}
		return
	}
	req := b.attempt.request
	req.Config = timed(value, b.block.Schema, healthPolicy(b.block.Meta.Health, b.addr().Kind))
	req.Environment, req.Placement, req.Runtime = environment(meta), placement(meta, b.devices), runtime(meta)
	req.Policy, req.SyncedBy = sdk.Policy(s.e.store.Policy()), s.syncedBy(b.addr())
	req.SharesDevices = s.sharesDevices(b)
	req.Sensitive = append(secrets, req.Token, req.ControlToken)
	if len(b.block.Meta.StopWhen) > 0 {
		b.rules = newStopRules(b.block.Meta.StopWhen, s.e.now())
	}
	config, devices := b.config, b.devices // may have changed since
	s.e.note(b.addr(), func(rec *state.Block) { rec.Config, rec.Devices = config, devices })
	b.attempt.start <- req
}

// start starts a block that was prepared, unless it is to end.
func (w *watcher) start(ctx context.Context, req host.Start) {
	if w.ordered != nil {
		return
	}
	w.startDeadline.Reset(w.attempt.patience())
	w.end = w.attempt.startBlock(ctx, w.proc, req)
}

// settle tells a block that is prepared that it may use what is left of its accelerators' memory. A plugin that is
// older, or has been started meanwhile, answers that it is there already.
func (w *watcher) settle(ctx context.Context) {
	if w.ordered != nil {
		return
	}
	c, cancel := context.WithTimeout(ctx, w.attempt.health.Timeout)
	defer cancel()
	req := w.attempt.request
	req.SharesDevices = false
	if err := w.proc.Prepare(c, req); err != nil && !errors.Is(err, host.ErrExists) && ctx.Err() == nil {
		w.attempt.e.notice("warn", fmt.Sprintf("%s goes on only when it is started: %v", w.attempt.block, err))
	}
}

// evaluate gives the values of a block's body with the outputs that are known, and checks its preconditions.
func (s *supervisor) evaluate(b *blockState) (cty.Value, decode.Meta, []string, error) {
	value, meta, diags := s.recipe.Evaluate(b.addr(), s.valuesFor(b))
	var err error
	if diags.HasErrors() {
		err = diagnosticsError(diags)
	}
	if lost := s.lost(b, value, err); lost != nil {
		err = lost
	}
	if err != nil {
		return cty.NilVal, meta, nil, err
	}
	secrets := s.e.addSecretsOfBlock(value, meta)
	return value, meta, secrets, s.checkConditions(b, false)
}

// sharesDevices reports whether another block works, or may work, on an accelerator of this one.
func (s *supervisor) sharesDevices(b *blockState) bool { return len(s.sharers(b)) > 0 }

// sharers are the other blocks that work, or may work, on an accelerator of this one. Only inference and trainers use
// any without saying so.
func (s *supervisor) sharers(b *blockState) (found []*blockState) {
	uses := func(o *blockState) (devices []string, machine string, used bool) {
		p := placement(o.block.Meta, o.devices)
		k := o.addr().Kind
		return p.Devices, p.Host, len(p.Devices) > 0 || p.GPUs > 0 || k == kind.Inference || k == kind.Trainer
	}
	own, here, _ := uses(b)
	for _, o := range s.sorted() {
		if o == b || o.Goal != lifecycle.Up || o.block.Meta.External != nil {
			continue
		}
		theirs, there, used := uses(o)
		if !used || here != there {
			continue
		}
		if len(own) == 0 || len(theirs) == 0 ||
			slices.ContainsFunc(own, func(d string) bool { return slices.Contains(theirs, d) }) {
			found = append(found, o)
		}
	}
	return found
}

// inStage reports whether a block in a phase has not been started yet.
func inStage(p sdk.Phase) bool { return p == sdk.Preparing || p == sdk.Prepared }
