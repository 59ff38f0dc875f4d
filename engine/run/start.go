package run

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/zclconf/go-cty/cty"
	ctyjson "github.com/zclconf/go-cty/cty/json"

	"github.com/recipe-rl/recipe/engine/event"
	"github.com/recipe-rl/recipe/engine/host"
	"github.com/recipe-rl/recipe/engine/run/lifecycle"
	"github.com/recipe-rl/recipe/engine/state"
	"github.com/recipe-rl/recipe/engine/tracking"
	"github.com/recipe-rl/recipe/schema"
	"github.com/recipe-rl/recipe/schema/addr"
	"github.com/recipe-rl/recipe/schema/decode"
	"github.com/recipe-rl/recipe/sdk"
	"github.com/recipe-rl/recipe/sdk/kind"
)

// start evaluates a block's body with the real outputs of what it needs and begins an attempt of it.
func (s *supervisor) start(b *blockState) {
	s.dirty = true
	value, meta, secrets, err := s.evaluate(b)
	if err != nil {
		s.cannotStart(b, err)
		return
	}
	switch {
	case b.block.Mock != cty.NilVal:
		s.startMock(b)
		return
	case meta.External != nil:
		s.startExternal(b, meta)
		return
	case b.addr().Kind.Life() == kind.Config:
		plain, _ := value.UnmarkDeep()
		s.move(b, lifecycle.Concluded{Phase: sdk.Ready})
		s.setOutputs(b, plain)
		s.e.append(event.Event{Type: event.Phase, Address: b.addr().String(), Phase: string(sdk.Ready)})
		config := b.config
		s.e.note(b.addr(), func(rec *state.Block) {
			rec.Intent, rec.Attempt, rec.Phase, rec.Config = state.IntentDone, 1, string(sdk.Ready), config
		})
		return
	}
	req, err := s.request(b, value, meta)
	if err != nil {
		s.cannotStart(b, err)
		return
	}
	req.Sensitive = append(secrets, req.Token, req.ControlToken)
	if b.next, err = s.place(b, meta); err != nil {
		s.cannotStart(b, err)
		return
	}
	if b.next != nil {
		req.Handle = nil // its programs ended with the job that they were in
	}
	s.begin(b, req, false)
}

// startMock gives a block the outputs that a test has set. It has no process; a job is done at once.
func (s *supervisor) startMock(b *blockState) {
	done := sdk.Ready
	if b.job() {
		done = sdk.Completed
	}
	s.move(b, lifecycle.Concluded{Phase: done})
	s.setOutputs(b, b.block.Mock)
	s.e.append(event.Event{Type: event.Phase, Address: b.addr().String(), Phase: string(done), Message: "mocked"})
	phase, config, outputs := string(done), b.config, s.e.storedOutputs(b.block.Mock, b.block.Schema)
	s.e.note(b.addr(), func(rec *state.Block) {
		rec.External, rec.Intent, rec.Attempt = true, state.IntentDone, 1
		rec.Phase, rec.Config, rec.Outputs = phase, config, outputs
	})
}

// cannotStart fails a block that cannot be started: it fails for good, since trying again would end the same way.
func (s *supervisor) cannotStart(b *blockState, err error) {
	if said := s.e.scrub(err.Error()); said != err.Error() {
		err = errors.New(said)
	}
	s.move(b, lifecycle.Concluded{Phase: sdk.Failed})
	b.err = err
	s.e.append(event.Event{Type: event.Phase, Address: b.addr().String(), Phase: string(sdk.Failed),
		Message: err.Error()})
	s.e.note(b.addr(), func(rec *state.Block) { rec.Phase, rec.Error = string(sdk.Failed), err.Error() })
}

// begin begins an attempt of the block, with its start or with its preparation.
func (s *supervisor) begin(b *blockState, req host.Start, prepares bool) {
	s.move(b, lifecycle.Begun{Prepares: prepares})
	b.attempts++
	at := newAttempt(s.e, b.addr(), b.block.Schema, b.attempts, healthPolicy(b.block.Meta.Health, b.addr().Kind))
	at.request, at.adopt, at.placed, at.others, at.recipe = req, b.adopt, b.next, s.names(), s.recipe
	b.next = nil
	if b.adopt != nil {
		b.attempts-- // an adopted process continues its attempt
		at.number = b.attempts
		at.paused = !s.pauses.paused() // what the engine before this one told it is not known
	}
	// Events of a block are numbered over all of its attempts.
	at.cursor = s.e.log.Cursor(b.addr().String()).Seq
	at.request.FirstEvent = at.cursor + 1
	ctx, cancel := context.WithCancel(s.ctx)
	b.attempt, b.cancel, b.adopt = at, cancel, nil
	at.prepares, b.unprepared, b.memoryTaken = prepares, false, false
	b.err, b.remedy, b.last, b.ruleEnding = nil, "", nil, ""
	if len(b.block.Meta.StopWhen) > 0 {
		since := s.e.now()
		if rec := s.e.store.Block(b.addr()); at.adopt != nil && rec != nil && !rec.Started.IsZero() {
			since = rec.Started // by an earlier engine
		}
		b.rules = newStopRules(b.block.Meta.StopWhen, since)
	}
	config, devices := b.config, b.devices
	plugin, digest := "", ""
	if b.block.Schema != nil {
		plugin, digest = b.block.Schema.Version, b.block.Schema.Digest
	}
	if at.adopt == nil {
		s.e.note(b.addr(), func(rec *state.Block) {
			rec.Config, rec.Devices, rec.Plugin, rec.Schema = config, devices, plugin, digest
		})
	}
	go at.run(ctx, attemptReport{e: s.e, block: b.addr(), attempt: b.attempts})
}

// adopt begins to follow a process that was found alive.
func (s *supervisor) adopt(b *blockState) {
	s.e.append(event.Event{Type: event.Adopted, Address: b.addr().String(), PID: b.adopt.PID(),
		BlockAttempt: b.attempts, Message: "adopted from an earlier engine"})
	s.e.addSecretsOfBlock(b.block.Value, b.block.Meta) // it may still repeat what an earlier engine gave it
	s.begin(b, host.Start{}, false)
}

// request is the start request of the block's process.
func (s *supervisor) request(b *blockState, value cty.Value, meta decode.Meta) (host.Start, error) {
	e, a := s.e, b.addr()
	s.renewTokens(a, meta)
	renewals := 0
	if rec := e.store.Block(a); rec != nil {
		renewals = rec.Renewals
	}
	token, err := e.opts.Dir.Token("data", a, renewals)
	if err != nil {
		return host.Start{}, err
	}
	control, err := e.opts.Dir.Token("control", a, renewals)
	if err != nil {
		return host.Start{}, err
	}
	e.addSecrets(token, control)
	dir, checkpoints := e.opts.Dir.Block(a), e.opts.Dir.Checkpoints(a)
	for _, d := range []string{dir, checkpoints} {
		if err := os.MkdirAll(d, 0o700); err != nil {
			return host.Start{}, fmt.Errorf("create its folder: %w", err)
		}
	}
	if a.Kind == kind.Trainer && IsPlaced(meta) {
		e.lineageFor(dir)
	}
	health := healthPolicy(b.block.Meta.Health, a.Kind)
	req := host.Start{Config: timed(value, b.block.Schema, health), Grace: health.StopTimeout, Block: sdk.Block{
		Address: a.String(), RunID: e.store.ID(), Recipe: e.opts.Name,
		Dir: absolute(dir), RunDir: absolute(string(e.opts.Dir)), RecipeDir: absolute(s.recipe.Dir),
		CheckpointDir: absolute(checkpoints),
		Environment:   s.shared(a, environment(meta)), Placement: placement(meta, b.devices), Runtime: runtime(meta),
		Token: token, ControlToken: control, SyncedBy: s.syncedBy(a),
		Resume:        b.From == lifecycle.Resumed || b.From == lifecycle.Recorded && b.attempts > 0,
		Policy:        sdk.Policy(e.store.Policy()), // what a restarted inference block is brought to
		SharesDevices: s.sharesDevices(b),
	}}
	if old := e.store.Block(a); old != nil {
		req.Listen, req.Handle = old.Listen, old.Handle
	}
	if req.Resume {
		if err := s.hasCheckpoint(b); err != nil {
			return host.Start{}, err
		}
		if rec := e.store.Block(a); rec != nil && rec.Checkpoint != nil {
			req.RecordedStep = rec.Checkpoint.Step
		}
	}
	if !req.Resume {
		if err := s.setAside(b); err != nil {
			return host.Start{}, err
		}
		if err := os.MkdirAll(checkpoints, 0o700); err != nil {
			return host.Start{}, fmt.Errorf("create its folder: %w", err)
		}
	}
	if a.Kind == kind.Trainer {
		if err := s.evaluations.ledger.write(a, checkpoints); err != nil {
			e.notice("warn", fmt.Sprintf("%s: %v", a, err))
		}
	}
	return req, nil
}

func absolute(p string) string {
	if abs, err := filepath.Abs(p); err == nil {
		return abs
	}
	return p
}

func environment(m decode.Meta) map[string]string {
	out := map[string]string{}
	for k, v := range m.Environment {
		v, _ = v.UnmarkDeep()
		if !v.IsNull() && v.IsKnown() && v.Type() == cty.String {
			out[k] = v.AsString()
		}
	}
	return out
}

// shared adds the variables with which trainers and environments that log to a tracker themselves share its project and
// group, and those with which blocks trace rollouts, where the block sets none.
func (s *supervisor) shared(a addr.Block, own map[string]string) map[string]string {
	all := map[string]string{}
	if a.Kind == kind.Trainer || a.Kind == kind.Environment {
		maps.Copy(all, tracking.Environment(s.recipe.Trackers, s.e.opts.Name, s.e.store.ID(), os.Getenv))
	}
	maps.Copy(all, tracking.Traces(s.recipe.Trackers, os.Getenv))
	maps.Copy(all, own)
	return all
}

// placement is where the block is put: on the GPUs that it names, else on those that were dealt to it.
func placement(m decode.Meta, dealt []string) sdk.Placement {
	if m.Placement == nil {
		return sdk.Placement{}
	}
	p := *m.Placement
	if len(p.Devices) == 0 {
		p.Devices = dealt
	}
	return p
}

func runtime(m decode.Meta) sdk.Runtime {
	if m.Runtime == nil {
		return sdk.Runtime{}
	}
	return *m.Runtime
}

// syncedBy lists the sync blocks that refer to a.
func (s *supervisor) syncedBy(a addr.Block) []string {
	var out []string
	for _, b := range s.sorted() {
		if b.addr().Kind == kind.Sync && b.Goal == lifecycle.Up && needs(b, a) {
			out = append(out, b.addr().String())
		}
	}
	return out
}

// outputValues is what is known of every block's outputs. It is not to be changed.
func (s *supervisor) outputValues() map[addr.Block]cty.Value { return s.values }

// setOutputs sets the outputs of a block; cty.NilVal: none.
func (s *supervisor) setOutputs(b *blockState, outputs cty.Value) {
	outputs = s.e.withBest(b.addr(), outputs)
	b.outputs, b.redacted, s.outputs.moved = outputs, nil, true
	if outputs == cty.NilVal {
		delete(s.values, b.addr())
		return
	}
	s.values[b.addr()] = s.e.markSecrets(outputs)
}

// checkConditions evaluates a block's preconditions or postconditions.
func (s *supervisor) checkConditions(b *blockState, post bool) error {
	var errs []error
	for _, check := range b.block.Meta.Lifecycle {
		if check.Post != post {
			continue
		}
		ok, message, diags := s.recipe.EvaluateCheck(check, b.addr(), s.outputValues())
		switch {
		case diags.HasErrors():
			errs = append(errs, diagnosticsError(diags))
		case !ok:
			name := "precondition"
			if post {
				name = "postcondition"
			}
			errs = append(errs, fmt.Errorf("%s at %s failed: %s", name, check.Range, message))
		}
	}
	return errors.Join(errs...)
}

func diagnosticsError(diags hcl.Diagnostics) error {
	var lines []string
	for _, d := range diags {
		if d.Severity != hcl.DiagError {
			continue
		}
		line := d.Summary
		if d.Detail != "" {
			line += ": " + d.Detail
		}
		if d.Subject != nil {
			line = d.Subject.String() + ": " + line
		}
		lines = append(lines, line)
	}
	return errors.New(strings.Join(lines, "\n"))
}

// storedOutputs is the form of outputs that may be written down: no sensitive ones, and null for those that repeat a
// secret.
func (e *Engine) storedOutputs(v cty.Value, p *schema.PluginSchema) map[string]json.RawMessage {
	out := map[string]json.RawMessage{}
	if v == cty.NilVal || v.IsNull() || !v.IsKnown() {
		return out
	}
	v = e.markSecrets(v)
	for _, a := range p.Outputs.Attributes {
		if a.Sensitive || !v.Type().HasAttribute(a.Name) {
			continue
		}
		if v.GetAttr(a.Name).ContainsMarked() {
			out[a.Name] = redacted
			continue
		}
		x, _ := v.GetAttr(a.Name).UnmarkDeep()
		if !x.IsWhollyKnown() || x.IsNull() {
			continue
		}
		if b, err := ctyjson.Marshal(x, x.Type()); err == nil {
			out[a.Name] = b
		}
	}
	return out
}

// RecordedOutputs are the outputs of a block in the run's record; what is not recorded is null.
func RecordedOutputs(rec map[string]json.RawMessage, p *schema.PluginSchema) cty.Value {
	if len(rec) == 0 || p == nil || p.Outputs == nil {
		return cty.NilVal
	}
	attrs := map[string]cty.Value{}
	for _, a := range p.Outputs.Attributes {
		attrs[a.Name] = cty.NullVal(a.Type)
		if b, ok := rec[a.Name]; ok {
			if v, err := ctyjson.Unmarshal(b, a.Type); err == nil {
				attrs[a.Name] = v
			}
		}
	}
	return cty.ObjectVal(attrs)
}
