package run

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"

	"github.com/hashicorp/hcl/v2"
	"github.com/zclconf/go-cty/cty"
	ctyjson "github.com/zclconf/go-cty/cty/json"

	"github.com/recipe-rl/recipe/engine/event"
	"github.com/recipe-rl/recipe/engine/state"
)

// runOutputs are the outputs of the recipe as they were noted last.
type runOutputs struct {
	noted map[string]state.RecordedOutput
	moved bool // a block has other outputs since, or the recipe is another one
}

// noteOutputs notes the outputs of the recipe that are known by now: whoever uses a server asks for its address while
// it runs. Once a second at most, since blocks report outputs at every step. What is wrong with an expression is said
// at the end of the run, when nothing can be unknown any more.
func (s *supervisor) noteOutputs() {
	if !s.outputs.moved || s.ending != nil || len(s.recipe.Outputs) == 0 {
		return
	}
	s.outputs.moved = false
	recorded, _, _ := s.evaluateOutputs()
	fresh := map[string]state.RecordedOutput{}
	for name, rec := range recorded {
		if was, ok := s.outputs.noted[name]; rec.Type != nil && (!ok || !reflect.DeepEqual(rec, was)) {
			fresh[name] = rec
		}
	}
	if len(fresh) == 0 {
		return
	}
	s.e.noteRun(func(r *state.Run) {
		if r.Outputs == nil {
			r.Outputs = map[string]state.RecordedOutput{}
		}
		maps.Copy(r.Outputs, fresh)
	})
	s.tellOutputs(fresh)
}

// finalOutputs notes all outputs of the recipe at the end of the run. visible has the known ones, also sensitive ones,
// for the caller's eyes only.
func (s *supervisor) finalOutputs() (visible map[string]any, err error) {
	recorded, plain, diags := s.evaluateOutputs()
	visible = map[string]any{}
	for name, value := range plain {
		visible[name] = value
	}
	if diags.HasErrors() {
		err = fmt.Errorf("evaluate the outputs: %w", diagnosticsError(diags))
	}
	s.e.noteRun(func(r *state.Run) { r.Outputs = recorded })
	s.tellOutputs(recorded)
	return visible, err
}

// tellOutputs adds to the log those outputs that differ from what it says already.
func (s *supervisor) tellOutputs(recorded map[string]state.RecordedOutput) {
	if s.outputs.noted == nil {
		s.outputs.noted = map[string]state.RecordedOutput{}
	}
	for _, o := range s.recipe.Outputs {
		rec, ok := recorded[o.Name]
		if !ok {
			continue
		}
		was := s.outputs.noted[o.Name]
		switch {
		case rec.Value != nil && string(rec.Value) != string(was.Value):
			s.e.append(event.Event{Type: event.Output, Name: o.Name, Value: rec.Value})
		case rec.Sensitive && rec.Type != nil && (was.Type == nil || !was.Sensitive): // it is known now, or secret now
			s.e.append(event.Event{Type: event.Output, Name: o.Name, Sensitive: true})
		}
		s.outputs.noted[o.Name] = rec
	}
}

// Output returns an output of the recipe as it is now, also a sensitive one, which is stored nowhere. Only the user
// whose engine this is can ask.
func (e *Engine) Output(ctx context.Context, name string) (json.RawMessage, error) {
	var value json.RawMessage
	err := e.ask(ctx, func(s *supervisor) error {
		recorded, plain, diags := s.evaluateOutputs()
		var known bool
		switch value, known = plain[name]; {
		case known:
			return nil
		case diags.HasErrors():
			return fmt.Errorf("evaluate output %q: %w", name, diagnosticsError(diags))
		}
		if _, declared := recorded[name]; !declared {
			return fmt.Errorf("the recipe has no output %q", name)
		}
		return fmt.Errorf("output %q is not known yet: a block that it is made of is not ready", name)
	})
	return value, err
}

// evaluateOutputs returns the outputs of the recipe as they are stored, and plainly where they are known.
func (s *supervisor) evaluateOutputs() (
	map[string]state.RecordedOutput, map[string]json.RawMessage, hcl.Diagnostics) {
	values, diags := s.recipe.EvaluateOutputs(s.outputValues())
	recorded, plain := map[string]state.RecordedOutput{}, map[string]json.RawMessage{}
	for _, o := range s.recipe.Outputs {
		v, ok := values[o.Name]
		if !ok {
			continue
		}
		rec, text := recordedOutput(o.Sensitive, v)
		rec.Description = o.Description
		if text != nil {
			plain[o.Name] = text
		}
		recorded[o.Name] = rec
	}
	return recorded, plain, diags
}

// recordedOutput is one output in its stored form, and plainly for the caller; nil, and without a type, when it is not
// known.
func recordedOutput(sensitive bool, v cty.Value) (state.RecordedOutput, json.RawMessage) {
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
	return rec, b
}
