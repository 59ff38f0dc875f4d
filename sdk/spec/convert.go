package spec

import (
	"github.com/zclconf/go-cty/cty"
	"github.com/zclconf/go-cty/cty/convert"
)

// Convert is convert.Convert that takes a time in proportion to the length of a list that is written out. cty looks for
// a common type of the elements, for which it compares each with each, also when all have the type of the list: three
// seconds for 20,000 numbers.
func Convert(v cty.Value, t cty.Type) (cty.Value, error) {
	if list, ok := asList(v, t); ok {
		return list, nil
	}
	return convert.Convert(v, t)
}

// asList makes a list of a tuple when each element, converted by itself, comes to the type of the list's elements. All
// else, errors included, is left to cty.
func asList(v cty.Value, t cty.Type) (cty.Value, bool) {
	if !t.IsListType() || !v.Type().IsTupleType() || v.IsMarked() || !v.IsKnown() || v.IsNull() || v.LengthInt() == 0 {
		return cty.NilVal, false
	}
	given, want := v.Type().TupleElementTypes(), t.ElementType()
	if want == cty.DynamicPseudoType && given[0].IsPrimitiveType() {
		want = given[0]
		for _, other := range given {
			if other != want {
				return cty.NilVal, false
			}
		}
	}
	plain := want.WithoutOptionalAttributesDeep()
	if plain.HasDynamicTypes() {
		return cty.NilVal, false
	}
	elems := v.AsValueSlice()
	for i, elem := range elems {
		got, err := Convert(elem, want)
		if err != nil || !got.Type().Equals(plain) {
			return cty.NilVal, false
		}
		elems[i] = got
	}
	return cty.ListVal(elems), true
}
