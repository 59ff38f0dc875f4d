package spec

import (
	"slices"

	"github.com/zclconf/go-cty/cty"
)

// Environment names the variables that a block's process gets of the engine's environment because of what its body
// sets: those of the attributes that are neither null nor an empty string. A value that is not known yet counts as
// set.
func (s *Schema) Environment(body cty.Value) []string {
	if s == nil || body == cty.NilVal {
		return nil
	}
	var names []string
	for _, a := range s.Attributes {
		if len(a.Environment) > 0 && isSet(part(body, a.Name)) {
			names = append(names, a.Environment...)
		}
	}
	for _, b := range s.Blocks {
		nested := part(body, b.Name)
		switch {
		case !isSet(nested):
		case b.Nesting == List && nested.IsKnown():
			for _, one := range nested.AsValueSlice() {
				names = append(names, b.Schema.Environment(one)...)
			}
		default:
			names = append(names, b.Schema.Environment(nested)...)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// part is an attribute or nested block of a body: null where the body has none, unknown where the body is.
func part(body cty.Value, name string) cty.Value {
	body, _ = body.Unmark()
	switch {
	case !body.IsKnown():
		return cty.DynamicVal
	case body.IsNull() || !body.Type().IsObjectType() || !body.Type().HasAttribute(name):
		return cty.NullVal(cty.DynamicPseudoType)
	}
	v, _ := body.GetAttr(name).Unmark()
	return v
}

func isSet(v cty.Value) bool {
	return !v.IsKnown() || !v.IsNull() && (v.Type() != cty.String || v.AsString() != "")
}
