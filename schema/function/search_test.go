package function_test

import (
	"slices"
	"testing"

	"github.com/zclconf/go-cty/cty"
	"github.com/zclconf/go-cty/cty/function/stdlib"

	"github.com/recipe-rl/recipe/schema/function"
)

// contains answers as that of cty does, and index agrees with it.
func TestContainsAnswersAsThatOfCty(t *testing.T) {
	t.Parallel()
	all := function.All(function.Options{Files: &function.Files{Dir: t.TempDir()}, Sensitive: "sensitive",
		Ephemeral: "ephemeral"})
	text, number := cty.StringVal("a"), cty.NumberIntVal(1)
	values := append(odd(), text, number, cty.TupleVal([]cty.Value{text}), cty.TupleVal([]cty.Value{text, number}),
		cty.ListVal([]cty.Value{text}), cty.SetVal([]cty.Value{text}), cty.MapVal(map[string]cty.Value{"a": text}),
		cty.ObjectVal(map[string]cty.Value{"a": text}), cty.NullVal(cty.Map(cty.String)))
	values = slices.DeleteFunc(values, func(v cty.Value) bool { // numbers that every function refuses
		_, err := all["length"].Call([]cty.Value{cty.TupleVal([]cty.Value{v})})
		return err != nil
	})
	list := cty.TupleVal(values)
	for _, v := range values {
		for _, in := range []cty.Value{list, cty.TupleVal([]cty.Value{v}), cty.TupleVal([]cty.Value{text, v, number})} {
			want, werr := stdlib.Contains(in, v)
			got, err := all["contains"].Call([]cty.Value{in, v})
			if err != nil || werr != nil {
				t.Fatalf("contains(a list of %d, %#v): %v, %v", in.LengthInt(), v, err, werr)
			}
			if v.IsKnown() && !got.RawEquals(want) || got.IsKnown() != want.IsKnown() {
				t.Errorf("contains(a list of %d, %#v) = %#v, want %#v", in.LengthInt(), v, got, want)
			}
			at, err := all["index"].Call([]cty.Value{in, v})
			found, _ := got.Unmark()
			if err == nil && at.IsKnown() && found.IsKnown() && found.False() {
				t.Errorf("index(a list of %d, %#v) = %#v of what is not in it", in.LengthInt(), v, at)
			}
		}
	}
}
