// Package input reads what the variables of a recipe are given: in the environment, a saved plan, files of variables
// and on
// the command line. It converts, checks and marks the values.
package input

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"github.com/hashicorp/hcl/v2"
	"github.com/zclconf/go-cty/cty"
	ctyjson "github.com/zclconf/go-cty/cty/json"

	"github.com/recipe-rl/recipe/schema/diagnostic"
	"github.com/recipe-rl/recipe/schema/parse"
)

// Value is the text given for a variable, and where it was given.
type Value struct {
	Raw    string // HCL expression, or a plain string for a variable of type string
	Source string
	Value  cty.Value `json:"-"` // instead of Raw, unless it is cty.NilVal
	Range  hcl.Range `json:"-"` // of Value
}

// Planned is the value that a variable had when a plan was saved, for the apply of that plan.
type Planned struct {
	Type   json.RawMessage `json:"type,omitempty"`
	Value  json.RawMessage `json:"value,omitempty"`
	Source string          `json:"source"`              // as that of Variable
	Secret bool            `json:"sensitive,omitempty"` // the value is not stored
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

// plannedValues adds the values of Options.Planned: a plan was approved with them, whatever the environment says now.
func (p *Reader) plannedValues(declared map[string]*parse.Variable, out map[string]Given) {
	for _, name := range slices.Sorted(maps.Keys(p.Planned)) {
		planned, v := p.Planned[name], declared[name]
		if v == nil || !planned.stored() {
			continue
		}
		value, err := planned.Get()
		if err != nil {
			p.Diags = append(p.Diags, &hcl.Diagnostic{Severity: hcl.DiagError, Summary: "Damaged plan",
				Detail: fmt.Sprintf("The saved plan has no readable value of the variable %q (%s): make a new plan.", name,
					err)})
		}
		out[name] = Given{Value: value, Source: planned.Source, Range: v.Header, Broken: err != nil,
			Stored: true}
	}
}

// checkWithheld reports variables that had a value when the plan was saved, which was not stored, and have none now.
func (p *Reader) checkWithheld(declared map[string]*parse.Variable, out map[string]Given) {
	for _, name := range slices.Sorted(maps.Keys(p.Planned)) {
		planned, v := p.Planned[name], declared[name]
		if _, given := out[name]; given || v == nil || !planned.Secret || planned.Source == Default {
			continue
		}
		p.Diags = append(p.Diags, diagnostic.Problem(v.Header, "Variable without a value", fmt.Sprintf(
			"The value that %s gave to the variable %q when the plan was saved is sensitive, so the plan does not contain "+
				"it. Give the same value again: with --var %s=…, in a --var-file, or in RECIPE_VAR_%s.", planned.Source, name,
			name, name)))
		out[name] = Given{Source: planned.Source, Broken: true}
	}
}
