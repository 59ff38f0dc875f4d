package schema

import (
	"fmt"

	"github.com/hashicorp/hcl/v2/hclwrite"
	"github.com/zclconf/go-cty/cty"
	ctyjson "github.com/zclconf/go-cty/cty/json"

	"github.com/recipe-rl/recipe/schema/input"
)

// Planned returns the value of each variable. Sensitive values, and those of env(), are left out.
func (r *Recipe) Planned() (map[string]input.Planned, error) {
	out := make(map[string]input.Planned, len(r.Variables))
	for _, v := range r.Variables {
		p := input.Planned{Source: v.Source}
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

// Given reports whether something else than its default gave the variable its value.
func (v *Variable) Given() bool { return v.Source != input.Default }

// Argument is the value as --var takes it. The variable must not be sensitive.
func (v *Variable) Argument() string {
	if v.Type == cty.String && !v.Value.IsNull() {
		return v.Value.AsString()
	}
	return string(hclwrite.TokensForValue(v.Value).Bytes())
}
