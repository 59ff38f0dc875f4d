package run

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/hashicorp/hcl/v2"
	"github.com/zclconf/go-cty/cty"
	ctyjson "github.com/zclconf/go-cty/cty/json"

	"github.com/recipe-rl/recipe/engine/event"
	"github.com/recipe-rl/recipe/engine/host"
	"github.com/recipe-rl/recipe/engine/state"
	"github.com/recipe-rl/recipe/schema"
	"github.com/recipe-rl/recipe/schema/addr"
	"github.com/recipe-rl/recipe/sdk"
	"github.com/recipe-rl/recipe/sdk/kind"
)

// start evaluates a block's body with the real outputs of what it needs and begins a life of it.
func (c *conductor) start(u *unit) {
	c.dirty = true
	value, meta, diags := c.recipe.Evaluate(u.addr(), c.known())
	if diags.HasErrors() {
		c.unfit(u, diagnosticsError(diags))
		return
	}
	secrets := c.e.learnAll(value, meta)
	if err := c.checks(u, false); err != nil {
		c.unfit(u, err)
		return
	}
	switch {
	case meta.External != nil:
		c.startExternal(u, meta)
		return
	case u.addr().Kind.Life() == kind.Config:
		plain, _ := value.UnmarkDeep()
		u.phase, u.ready = sdk.Ready, true
		c.gives(u, plain)
		return
	}
	req, err := c.request(u, value, meta)
	if err != nil {
		c.unfit(u, err)
		return
	}
	req.Sensitive = append(secrets, req.Token, req.ControlToken)
	c.begin(u, req)
}

// unfit is a block that cannot be started: it fails for good, since trying again would end the same way.
func (c *conductor) unfit(u *unit, err error) {
	if said := c.e.scrub(err.Error()); said != err.Error() {
		err = errors.New(said)
	}
	u.phase, u.err, u.ready = sdk.Failed, err, false
	c.e.append(event.Event{Type: event.Phase, Address: u.addr().String(), Phase: string(sdk.Failed), Message: err.Error()})
	c.e.note(u.addr(), func(b *state.Block) { b.Phase, b.Error = string(sdk.Failed), err.Error() })
	c.dirty = true
}

func (c *conductor) begin(u *unit, req host.Start) {
	u.number++
	l := newLife(c.e, u.addr(), u.block.Schema, u.number, healthPolicy(u.block.Meta.Health, u.addr().Kind))
	l.request, l.adopt = req, u.adopt
	if u.adopt != nil {
		u.number-- // an adopted process goes on with the life that it is in
		l.number = u.number
	}
	// Events of a block are numbered over all of its lives.
	l.cursor = c.e.log.Cursor(u.addr().String()).Seq
	l.request.FirstEvent = l.cursor + 1
	ctx, cancel := context.WithCancel(c.ctx)
	u.life, u.cancel, u.adopt = l, cancel, nil
	u.phase, u.ready, u.err, u.remedy, u.last = sdk.Starting, false, nil, "", nil
	u.stopAsked, u.ruleEnding = time.Time{}, ""
	if len(u.block.Meta.StopWhen) > 0 {
		u.rules = newStopRules(u.block.Meta.StopWhen, c.e.now())
	}
	config, devices := u.config, u.devices
	plugin, digest := "", ""
	if u.block.Schema != nil {
		plugin, digest = u.block.Schema.Version, u.block.Schema.Digest
	}
	if l.adopt == nil {
		c.e.note(u.addr(), func(b *state.Block) { b.Config, b.Devices, b.Plugin, b.Schema = config, devices, plugin, digest })
	}
	go l.run(ctx, lifeReport{e: c.e, u: u.addr(), n: u.number})
}

// adopt begins to follow a process that was found alive.
func (c *conductor) adopt(u *unit) {
	c.e.append(event.Event{Type: event.Adopted, Address: u.addr().String(), PID: u.adopt.PID(), Life: u.number, Message: "found alive after an earlier engine ended"})
	c.e.learnAll(u.block.Value, u.block.Meta) // it may still repeat what an earlier engine gave it
	goalWas, again, why := u.goal, u.again, u.why
	c.begin(u, host.Start{})
	u.goal, u.again, u.why = goalWas, again, why
}

// request is everything that the block's process is told.
func (c *conductor) request(u *unit, value cty.Value, meta schema.Meta) (host.Start, error) {
	e, a := c.e, u.addr()
	token, err := e.opts.Dir.Token("data", a)
	if err != nil {
		return host.Start{}, err
	}
	control, err := e.opts.Dir.Token("control", a)
	if err != nil {
		return host.Start{}, err
	}
	e.addSecrets(token, control)
	dir, checkpoints := e.opts.Dir.Block(a), e.opts.Dir.Checkpoints(a)
	for _, d := range []string{dir, checkpoints} {
		if err := os.MkdirAll(d, 0o700); err != nil {
			return host.Start{}, fmt.Errorf("making its folder: %w", err)
		}
	}
	req := host.Start{
		Address: a.String(), RunID: e.store.ID(), Recipe: e.opts.Name, Config: timed(value, u.block.Schema, healthPolicy(u.block.Meta.Health, a.Kind)),
		Dir: absolute(dir), RunDir: absolute(string(e.opts.Dir)), RecipeDir: absolute(c.recipe.Dir), Checkpoints: absolute(checkpoints),
		Environment: environment(meta), Placement: placement(meta, u.devices), Runtime: runtime(meta),
		Token: token, ControlToken: control, SyncedBy: c.syncedBy(a), Resume: u.resume || u.number > 0,
		Policy: sdk.Policy(e.store.Policy()), // what a restarted inference block is brought to
	}
	if old := e.store.Block(a); old != nil {
		req.Listen, req.Handle = old.Listen, old.Handle
	}
	if u.fresh {
		req.Resume, u.fresh = false, false
	}
	if !req.Resume {
		if err := c.setAside(u); err != nil {
			return host.Start{}, err
		}
		if err := os.MkdirAll(checkpoints, 0o700); err != nil {
			return host.Start{}, fmt.Errorf("making its folder: %w", err)
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

func environment(m schema.Meta) map[string]string {
	out := map[string]string{}
	for k, v := range m.Environment {
		v, _ = v.UnmarkDeep()
		if !v.IsNull() && v.IsKnown() && v.Type() == cty.String {
			out[k] = v.AsString()
		}
	}
	return out
}

// placement is where the block is put: on the GPUs that it names, else on those that were dealt to it.
func placement(m schema.Meta, dealt []string) sdk.Placement {
	if m.Placement == nil {
		return sdk.Placement{}
	}
	p := m.Placement
	devices := p.Devices
	if len(devices) == 0 {
		devices = dealt
	}
	return sdk.Placement{GPUs: p.GPUs, Devices: devices, Executor: p.Executor, Host: p.Host}
}

func runtime(m schema.Meta) sdk.Runtime {
	if m.Runtime == nil {
		return sdk.Runtime{}
	}
	return sdk.Runtime{Python: m.Runtime.Python, Requirements: m.Runtime.Requirements, Venv: m.Runtime.Venv}
}

// syncedBy lists the sync blocks that refer to a.
func (c *conductor) syncedBy(a addr.Block) []string {
	var out []string
	for _, u := range c.sorted() {
		if u.addr().Kind == kind.Sync && u.goal == up && needs(u, a) {
			out = append(out, u.addr().String())
		}
	}
	return out
}

// known is what is known of every block's outputs. It is not to be changed.
func (c *conductor) known() map[addr.Block]cty.Value { return c.values }

// gives sets the outputs of a block; cty.NilVal: none.
func (c *conductor) gives(u *unit, outputs cty.Value) {
	u.outputs = outputs
	if outputs == cty.NilVal {
		delete(c.values, u.addr())
		return
	}
	c.values[u.addr()] = outputs
}

// checks evaluates a block's preconditions or postconditions.
func (c *conductor) checks(u *unit, post bool) error {
	var errs []error
	for _, check := range u.block.Meta.Lifecycle {
		if check.Post != post {
			continue
		}
		ok, message, diags := c.recipe.EvaluateCheck(check, u.addr(), c.known())
		switch {
		case diags.HasErrors():
			errs = append(errs, diagnosticsError(diags))
		case !ok:
			name := "precondition"
			if post {
				name = "postcondition"
			}
			errs = append(errs, fmt.Errorf("%s at %s does not hold: %s", name, check.Range, message))
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

// storedOutputs is the form of outputs that may be written down: no sensitive ones.
func storedOutputs(v cty.Value, p *schema.PluginSchema) map[string]json.RawMessage {
	out := map[string]json.RawMessage{}
	if v == cty.NilVal || v.IsNull() || !v.IsKnown() {
		return out
	}
	for _, a := range p.Outputs.Attributes {
		if a.Sensitive || !v.Type().HasAttribute(a.Name) {
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

// recordedOutputs reads storedOutputs back; what is not there is null.
func recordedOutputs(rec map[string]json.RawMessage, p *schema.PluginSchema) cty.Value {
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
