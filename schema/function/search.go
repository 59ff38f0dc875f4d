package function

import (
	"errors"

	"github.com/zclconf/go-cty/cty"
	"github.com/zclconf/go-cty/cty/function"
)

// contains says whether a list, tuple or set has a value. It answers as that of cty does, in a time that grows with the
// length of both and not with their product.
func contains() function.Function {
	return function.New(&function.Spec{
		Params: []function.Parameter{{Name: "list", Type: cty.DynamicPseudoType},
			{Name: "value", Type: cty.DynamicPseudoType, AllowNull: true}},
		Type:         function.StaticReturnType(cty.Bool),
		RefineResult: func(b *cty.RefinementBuilder) *cty.RefinementBuilder { return b.NotNull() },
		Impl: func(args []cty.Value, _ cty.Type) (cty.Value, error) {
			if t := args[0].Type(); !t.IsListType() && !t.IsTupleType() && !t.IsSetType() {
				return cty.NilVal, errors.New("argument must be list, tuple, or set")
			}
			known := true
			same := comparer(args[1])
			for it := args[0].ElementIterator(); it.Next(); {
				_, elem := it.Element()
				switch eq := same(elem); {
				case !eq.IsKnown():
					known = false // another may be the same
				case eq.True():
					return cty.True, nil
				}
			}
			if !known {
				return cty.UnknownVal(cty.Bool), nil
			}
			return cty.False, nil
		},
	})
}

// index returns the position of a value in a list.
func index() function.Function {
	return function.New(&function.Spec{
		Params: []function.Parameter{dynamicParam("list"), dynamicParam("value")},
		Type:   function.StaticReturnType(cty.Number),
		Impl: func(args []cty.Value, _ cty.Type) (cty.Value, error) {
			if t := args[0].Type(); !t.IsListType() && !t.IsTupleType() {
				return cty.NilVal, function.NewArgErrorf(0, "expected a list, got %s", t.FriendlyName())
			}
			same := comparer(args[1])
			for it := args[0].ElementIterator(); it.Next(); {
				i, elem := it.Element()
				switch eq := same(elem); {
				case !eq.IsKnown():
					return cty.UnknownVal(cty.Number), nil
				case eq.True():
					return i, nil
				}
			}
			return cty.NilVal, function.NewArgErrorf(1, "the value is not in the list")
		},
	})
}

// comparer returns a function that compares values with want, as cty's Equals does, whose answer may be unknown. Equals
// goes through all of both, also where they cannot be equal: here only a value of the kind and length of want costs as
// much as want is long.
func comparer(want cty.Value) func(v cty.Value) cty.Value {
	if !want.IsKnown() || want.IsNull() || !want.CanIterateElements() {
		return want.Equals
	}
	kind, length, whole := kindOf(want.Type()), want.LengthInt(), want.IsWhollyKnown()
	return func(v cty.Value) cty.Value {
		t := v.Type()
		switch {
		case v.IsNull():
			return cty.False
		case t == cty.DynamicPseudoType:
			return cty.UnknownVal(cty.Bool)
		case kindOf(t) != kind:
			return cty.False
		case !v.IsKnown():
			return cty.UnknownVal(cty.Bool)
		case v.LengthInt() != length && (!t.IsSetType() || whole && v.IsWhollyKnown()):
			return cty.False // of a set with unknown elements, two may be the same one
		}
		return want.Equals(v)
	}
}

// kindOf tells apart types of which no values are equal.
func kindOf(t cty.Type) string {
	switch {
	case t.IsListType():
		return "list"
	case t.IsSetType():
		return "set"
	case t.IsMapType():
		return "map"
	case t.IsTupleType():
		return "tuple"
	case t.IsObjectType():
		return "object"
	}
	return ""
}
