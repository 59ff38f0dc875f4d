package run

import (
	"encoding/json"
	"fmt"
	"os"

	"github.com/zclconf/go-cty/cty"
	ctyjson "github.com/zclconf/go-cty/cty/json"

	"github.com/recipe-rl/recipe/engine/event"
	"github.com/recipe-rl/recipe/engine/state"
	"github.com/recipe-rl/recipe/schema/addr"
)

func engineRecord(e *Engine) state.Engine {
	host, _ := os.Hostname()
	return state.Engine{PID: os.Getpid(), Host: host, Detached: e.opts.Lease == 0}
}

// close records the end of the run and returns its outputs: every one, also sensitive ones, for the caller's eyes only.
func (c *conductor) close() (map[string]any, error) {
	for _, u := range c.units {
		if u.checks != nil {
			u.checks()
		}
	}
	end := c.ending
	values, diags := c.recipe.EvaluateOutputs(c.known())
	if diags.HasErrors() && end.status == state.Completed {
		end.err = fmt.Errorf("evaluating the outputs: %w", diagnosticsError(diags))
		end.status = state.Failed
	}
	visible := map[string]any{}
	stored := map[string]state.RecordedOutput{}
	for _, o := range c.recipe.Outputs {
		v, ok := values[o.Name]
		if !ok {
			continue
		}
		rec, plain := c.output(o.Sensitive, v)
		rec.Description = o.Description
		if plain != nil {
			visible[o.Name] = plain
		}
		stored[o.Name] = rec
	}
	msg := ""
	if end.err != nil {
		msg = c.e.scrub(end.err.Error())
	}
	if err := c.e.store.Update(func(r *state.Run) {
		r.Status, r.Error, r.Ended, r.Engine = end.status, msg, c.e.now().UTC(), state.Engine{}
		r.Outputs = stored
	}); err != nil && end.err == nil {
		end.err = err
	}
	for name, rec := range stored {
		if !rec.Sensitive && rec.Value != nil {
			c.e.append(event.Event{Type: event.Output, Name: name, Value: rec.Value})
		}
	}
	if msg == "" {
		msg = end.why
	}
	c.e.append(event.Event{Type: event.RunEnded, Phase: string(end.status), Message: msg})
	return visible, end.err
}

// output is one output in its stored form, and plainly for the caller; nil when it is not known.
func (c *conductor) output(sensitive bool, v cty.Value) (state.RecordedOutput, any) {
	rec := state.RecordedOutput{Sensitive: sensitive || v.ContainsMarked()}
	plain, _ := v.UnmarkDeep()
	if !plain.IsWhollyKnown() {
		return rec, nil
	}
	b, err := ctyjson.Marshal(plain, plain.Type())
	if err != nil {
		return rec, nil
	}
	if t, err := ctyjson.MarshalType(plain.Type()); err == nil {
		rec.Type = t
	}
	if !rec.Sensitive {
		rec.Value = b
	}
	return rec, json.RawMessage(b)
}

// updated is the answer of a block to changed values.
func (c *conductor) updated(a addr.Block, config map[string]json.RawMessage, err error) {
	if err != nil {
		c.e.notice("error", fmt.Sprintf("%s did not take the change over: %v. It goes on with its old values; `recipe restart %s` starts it with the new ones", a, err, a))
		return
	}
	_ = c.e.journal(a, func(b *state.Block) { b.Config = config })
}
