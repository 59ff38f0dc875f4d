package function

import (
	"fmt"

	"github.com/zclconf/go-cty/cty"
	"github.com/zclconf/go-cty/cty/convert"
	"github.com/zclconf/go-cty/cty/function"
	"github.com/zclconf/go-cty/cty/function/stdlib"
)

func dynamicParam(name string) function.Parameter {
	return function.Parameter{Name: name, Type: cty.DynamicPseudoType, AllowDynamicType: true}
}

// to converts to a type; "true" to true, a list to a set, an object to a map.
func to(name string, t cty.Type) function.Function {
	return function.New(&function.Spec{
		Params: []function.Parameter{{Name: "value", Type: cty.DynamicPseudoType, AllowNull: true,
			AllowDynamicType: true}},
		Type: func(args []cty.Value) (cty.Type, error) {
			given := args[0].Type()
			if given.Equals(t) {
				return t, nil
			}
			if given == cty.DynamicPseudoType {
				return t, nil
			}
			v, err := convert.Convert(args[0], t)
			if err != nil {
				return cty.NilType, function.NewArgErrorf(0, "cannot convert %s with %s: %s", given.FriendlyName(),
					name, err)
			}
			return v.Type(), nil
		},
		Impl: func(args []cty.Value, ret cty.Type) (cty.Value, error) {
			v, err := convert.Convert(args[0], ret)
			if err != nil {
				return cty.NilVal, function.NewArgErrorf(0, "%s: %s", name, err)
			}
			return v, nil
		},
	})
}

func typeOf() function.Function {
	return function.New(&function.Spec{
		Params: []function.Parameter{{Name: "value", Type: cty.DynamicPseudoType, AllowNull: true, AllowUnknown: true,
			AllowDynamicType: true}},
		Type: function.StaticReturnType(cty.String),
		Impl: func(args []cty.Value, _ cty.Type) (cty.Value, error) {
			return cty.StringVal(args[0].Type().FriendlyName()), nil
		},
	})
}

// length counts elements, or characters of a string.
func length() function.Function {
	return function.New(&function.Spec{
		Params: []function.Parameter{{Name: "value", Type: cty.DynamicPseudoType, AllowDynamicType: true,
			AllowUnknown: true}},
		Type: func(args []cty.Value) (cty.Type, error) {
			t := args[0].Type()
			if t == cty.DynamicPseudoType || t == cty.String || t.IsCollectionType() || t.IsTupleType() ||
				t.IsObjectType() {
				return cty.Number, nil
			}
			return cty.NilType, function.NewArgErrorf(0, "expected a list, set, map, object or string, got %s",
				t.FriendlyName())
		},
		Impl: func(args []cty.Value, _ cty.Type) (cty.Value, error) {
			v := args[0]
			switch t := v.Type(); {
			case t.IsTupleType():
				return cty.NumberIntVal(int64(len(t.TupleElementTypes()))), nil
			case t.IsObjectType():
				return cty.NumberIntVal(int64(len(t.AttributeTypes()))), nil
			case !v.IsKnown():
				return cty.UnknownVal(cty.Number), nil
			case t == cty.String:
				return stdlib.Strlen(v)
			}
			return v.Length(), nil
		},
	})
}

// lookup returns an element of a map or object, or the default.
func lookup() function.Function {
	return function.New(&function.Spec{
		Params: []function.Parameter{dynamicParam("map"), {Name: "key", Type: cty.String}},
		VarParam: &function.Parameter{Name: "default", Type: cty.DynamicPseudoType, AllowNull: true,
			AllowDynamicType: true, AllowUnknown: true},
		Type: func(args []cty.Value) (cty.Type, error) {
			v, err := lookUp(args)
			if err != nil {
				return cty.NilType, err
			}
			return v.Type(), nil
		},
		Impl: func(args []cty.Value, _ cty.Type) (cty.Value, error) { return lookUp(args) },
	})
}

func lookUp(args []cty.Value) (cty.Value, error) {
	if len(args) > 3 {
		return cty.NilVal, fmt.Errorf("expected a map, a key and at most one default, got %d arguments", len(args))
	}
	m, key := args[0], args[1]
	switch t := m.Type(); {
	case t == cty.DynamicPseudoType:
		return cty.DynamicVal, nil
	case !t.IsMapType() && !t.IsObjectType():
		return cty.NilVal, function.NewArgErrorf(0, "expected a map or object, got %s", t.FriendlyName())
	case !key.IsKnown() || !m.IsKnown():
		return cty.DynamicVal, nil
	case t.IsObjectType():
		if t.HasAttribute(key.AsString()) {
			return m.GetAttr(key.AsString()), nil
		}
	case m.HasIndex(key).True():
		return m.Index(key), nil
	}
	if len(args) == 3 {
		return args[2], nil
	}
	return cty.NilVal, function.NewArgErrorf(1, "there is no key %q, and no default is given", key.AsString())
}

// one returns the only element of a list or set, or null when there is none.
func one() function.Function {
	only := func(v cty.Value) (cty.Value, error) {
		t := v.Type()
		if t == cty.DynamicPseudoType || (!v.IsKnown() && !t.IsTupleType()) {
			return cty.DynamicVal, nil
		}
		if !t.IsListType() && !t.IsSetType() && !t.IsTupleType() {
			return cty.NilVal, function.NewArgErrorf(0, "expected a list or set, got %s", t.FriendlyName())
		}
		if !v.IsKnown() {
			return cty.DynamicVal, nil
		}
		switch v.LengthInt() {
		case 0:
			return cty.NullVal(cty.DynamicPseudoType), nil
		case 1:
			for it := v.ElementIterator(); it.Next(); {
				_, elem := it.Element()
				return elem, nil
			}
		}
		return cty.NilVal, function.NewArgErrorf(0, "expected at most one element, got %d", v.LengthInt())
	}
	return function.New(&function.Spec{
		Params: []function.Parameter{dynamicParam("list")},
		Type: func(args []cty.Value) (cty.Type, error) {
			v, err := only(args[0])
			if err != nil {
				return cty.NilType, err
			}
			return v.Type(), nil
		},
		Impl: func(args []cty.Value, _ cty.Type) (cty.Value, error) { return only(args[0]) },
	})
}

func sum() function.Function {
	return function.New(&function.Spec{
		Params: []function.Parameter{{Name: "list", Type: cty.List(cty.Number)}},
		Type:   function.StaticReturnType(cty.Number),
		Impl: func(args []cty.Value, _ cty.Type) (cty.Value, error) {
			total := cty.Zero
			for it := args[0].ElementIterator(); it.Next(); {
				_, elem := it.Element()
				if elem.IsNull() {
					return cty.NilVal, function.NewArgErrorf(0, "a number in the list is null")
				}
				total = total.Add(elem)
			}
			return total, nil
		},
	})
}

func all_() function.Function { return fold(cty.True, cty.Value.And) }
func any_() function.Function { return fold(cty.False, cty.Value.Or) }

func fold(start cty.Value, combine func(cty.Value, cty.Value) cty.Value) function.Function {
	return function.New(&function.Spec{
		Params: []function.Parameter{{Name: "list", Type: cty.List(cty.Bool)}},
		Type:   function.StaticReturnType(cty.Bool),
		Impl: func(args []cty.Value, _ cty.Type) (cty.Value, error) {
			out := start
			for it := args[0].ElementIterator(); it.Next(); {
				_, elem := it.Element()
				if elem.IsNull() {
					return cty.False, nil
				}
				out = combine(out, elem)
			}
			return out, nil
		},
	})
}

// coalesce returns the first value that is neither null nor an empty string.
func coalesce() function.Function {
	return function.New(&function.Spec{
		VarParam: &function.Parameter{Name: "values", Type: cty.DynamicPseudoType, AllowNull: true, AllowUnknown: true,
			AllowDynamicType: true},
		Type: func(args []cty.Value) (cty.Type, error) {
			types := make([]cty.Type, len(args))
			for i, a := range args {
				types[i] = a.Type()
			}
			t, _ := convert.UnifyUnsafe(types)
			if t == cty.NilType {
				return cty.NilType, fmt.Errorf("all arguments must have the same type")
			}
			return t, nil
		},
		Impl: func(args []cty.Value, ret cty.Type) (cty.Value, error) {
			for _, a := range args {
				v, err := convert.Convert(a, ret)
				switch {
				case err != nil:
					return cty.NilVal, err
				case !v.IsKnown():
					return cty.UnknownVal(ret), nil
				case !v.IsNull() && !(v.Type() == cty.String && v.AsString() == ""):
					return v, nil
				}
			}
			return cty.NilVal, fmt.Errorf("every argument is null or an empty string")
		},
	})
}
