package schema

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclwrite"
	"github.com/zclconf/go-cty/cty"
	ctyjson "github.com/zclconf/go-cty/cty/json"

	"github.com/recipe-rl/recipe/schema/diagnostic"
	"github.com/recipe-rl/recipe/schema/parse"
)

// Planned is the value that a variable had when a plan was saved, for the apply of that plan.
type Planned struct {
	Type   json.RawMessage `json:"type,omitempty"`
	Value  json.RawMessage `json:"value,omitempty"`
	Source string          `json:"source"`              // as that of Variable
	Secret bool            `json:"sensitive,omitempty"` // the value is not stored
}

// Planned returns the value of each variable. Sensitive values, and those of env(), are left out.
func (r *Recipe) Planned() (map[string]Planned, error) {
	out := make(map[string]Planned, len(r.Variables))
	for _, v := range r.Variables {
		p := Planned{Source: v.Source}
		if v.Sensitive || v.Value.ContainsMarked() || !v.Value.IsWhollyKnown() {
			p.Secret = true
			out[v.Name] = p
			continue
		}
		var err error
		if p.Type, err = ctyjson.MarshalType(v.Value.Type()); err == nil {
			p.Value, err = ctyjson.Marshal(v.Value, v.Value.Type())
		}
		if err != nil {
			return nil, fmt.Errorf("write the value of the variable %s: %w", v.Name, err)
		}
		out[v.Name] = p
	}
	return out, nil
}

func (p Planned) stored() bool { return p.Value != nil }

// Get is the stored value; cty.NilVal if there is none.
func (p Planned) Get() (cty.Value, error) {
	if !p.stored() {
		return cty.NilVal, nil
	}
	t, err := ctyjson.UnmarshalType(p.Type)
	if err != nil {
		return cty.NilVal, err
	}
	return ctyjson.Unmarshal(p.Value, t)
}

// Given says whether something else than its default gave the variable its value.
func (v *Variable) Given() bool { return v.Source != defaultSource }

// Argument is the value as --var takes it. The variable must not be sensitive.
func (v *Variable) Argument() string {
	if v.Type == cty.String && !v.Value.IsNull() {
		return v.Value.AsString()
	}
	return string(hclwrite.TokensForValue(v.Value).Bytes())
}

// plannedValues adds the values of Options.Planned: a plan was approved with them, whatever the environment says now.
func (p *evaluator) plannedValues(declared map[string]*parse.Variable, out map[string]givenValue) {
	for _, name := range slices.Sorted(maps.Keys(p.opts.Planned)) {
		planned, v := p.opts.Planned[name], declared[name]
		if v == nil || !planned.stored() {
			continue
		}
		value, err := planned.Get()
		if err != nil {
			p.diags = append(p.diags, &hcl.Diagnostic{Severity: hcl.DiagError, Summary: "Damaged plan",
				Detail: fmt.Sprintf("The saved plan has no readable value of the variable %q (%s): make a new plan.", name,
					err)})
		}
		out[name] = givenValue{value: value, source: planned.Source, rng: v.Header, broken: err != nil,
			stored: true}
	}
}

// checkWithheld reports variables that had a value when the plan was saved, which was not stored, and have none now.
func (p *evaluator) checkWithheld(declared map[string]*parse.Variable, out map[string]givenValue) {
	for _, name := range slices.Sorted(maps.Keys(p.opts.Planned)) {
		planned, v := p.opts.Planned[name], declared[name]
		if _, given := out[name]; given || v == nil || !planned.Secret || planned.Source == defaultSource {
			continue
		}
		p.diags = append(p.diags, diagnostic.Problem(v.Header, "Variable without a value", fmt.Sprintf(
			"The value that %s gave to the variable %q when the plan was saved is sensitive, so the plan does not contain "+
				"it. Give the same value again: with --var %s=…, in a --var-file, or in RECIPE_VAR_%s.", planned.Source, name,
			name, name)))
		out[name] = givenValue{source: planned.Source, broken: true}
	}
}
