package spec

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/zclconf/go-cty/cty"
	"github.com/zclconf/go-cty/cty/convert"
)

// What Convert returns is what cty does, errors included.
func TestConvertIsThatOfCty(t *testing.T) {
	t.Parallel()
	num, text, yes := cty.NumberIntVal(1), cty.StringVal("2"), cty.True
	tuple := func(v ...cty.Value) cty.Value { return cty.TupleVal(v) }
	object := func(names ...string) cty.Value {
		m := map[string]cty.Value{}
		for _, n := range names {
			m[n] = num
		}
		return cty.ObjectVal(m)
	}
	values := []cty.Value{
		tuple(), tuple(num, num), tuple(num, text), tuple(text, yes), tuple(num, cty.StringVal("x")),
		tuple(num, num.Mark("m")), tuple(num, num).Mark("m"), tuple(tuple(num).Mark("m"), tuple(text)),
		tuple(num, cty.NullVal(cty.Number)), tuple(num, cty.NullVal(cty.DynamicPseudoType)),
		tuple(num, cty.UnknownVal(cty.Number)), tuple(text, cty.DynamicVal), tuple(cty.DynamicVal, cty.DynamicVal),
		tuple(num, cty.UnknownVal(cty.String).RefineNotNull()), tuple(num, cty.PositiveInfinity),
		tuple(tuple(num, num), tuple(text)), tuple(tuple(num), num), tuple(tuple(num), tuple()), tuple(tuple(), tuple()),
		tuple(tuple(num), cty.ListVal([]cty.Value{text})), tuple(cty.ListValEmpty(cty.Number), tuple(num)),
		tuple(object("a"), object("a", "b")), tuple(object("a"), object("b")), tuple(object("a", "c")),
		tuple(object("a"), cty.NullVal(cty.DynamicPseudoType)), tuple(cty.MapVal(map[string]cty.Value{"a": text})),
		cty.ListVal([]cty.Value{num, num}), cty.SetVal([]cty.Value{text}), num, object("a"),
		cty.NullVal(cty.Tuple([]cty.Type{cty.Number})), cty.UnknownVal(cty.Tuple([]cty.Type{cty.String, cty.Number})),
		cty.DynamicVal, cty.NullVal(cty.DynamicPseudoType),
	}
	optional := cty.ObjectWithOptionalAttrs(map[string]cty.Type{"a": cty.Number, "b": cty.String}, []string{"b"})
	types := []cty.Type{cty.Number, cty.String, cty.Bool, cty.DynamicPseudoType, optional, cty.Map(cty.Number),
		cty.Object(map[string]cty.Type{"a": cty.DynamicPseudoType}), cty.Set(cty.String), cty.Tuple([]cty.Type{cty.Number})}
	for _, elem := range types[:len(types):len(types)] {
		types = append(types, cty.List(elem), cty.List(cty.List(elem)))
	}
	for _, v := range values {
		for _, want := range types {
			got, err := Convert(v, want)
			expected, failed := convert.Convert(v, want)
			if fmt.Sprint(err) != fmt.Sprint(failed) || !pathOf(err).Equals(pathOf(failed)) {
				t.Errorf("%#v to %#v: error %v, want %v", v, want, err, failed)
			}
			if err == nil && failed == nil && !got.RawEquals(expected) {
				t.Errorf("%#v to %#v: got %#v, want %#v", v, want, got, expected)
			}
		}
	}
}

func pathOf(err error) cty.Path {
	var at cty.PathError
	errors.As(err, &at)
	return at.Path
}

// 100,000 elements take a tenth of a second; when each is compared with each, they take minutes.
func TestALongListIsConvertedInATimeInProportion(t *testing.T) {
	t.Parallel()
	elems := make([]cty.Value, 100_000)
	for i := range elems {
		elems[i] = cty.NumberIntVal(int64(i % 10))
	}
	v := cty.TupleVal(elems)
	for _, elem := range []cty.Type{cty.Number, cty.String, cty.DynamicPseudoType} {
		got, err := Convert(v, cty.List(elem))
		if err != nil || got.LengthInt() != len(elems) {
			t.Errorf("to a list of %s: %v", elem.FriendlyName(), err)
		}
	}
	list := &Attribute{Name: "x", Type: cty.List(cty.Number)}
	if problems := list.Check(v, nil); len(problems) > 0 {
		t.Errorf("%+v", problems)
	}
	elems[len(elems)-1] = cty.StringVal("ten")
	problems := list.Check(cty.TupleVal(elems), nil)
	if len(problems) != 1 || !strings.Contains(problems[0].Detail, "a number is required") {
		t.Errorf("%+v", problems)
	}
}
