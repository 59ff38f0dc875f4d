package spec

import (
	"errors"
	"fmt"
	"math"
	"math/big"
	"reflect"
	"time"

	"github.com/zclconf/go-cty/cty"

	"github.com/recipe-rl/recipe/sdk/kind"
)

// Decode writes v, a wholly known body of the schema, into the struct that into points to. Null and missing attributes
// leave zero values (nil for pointers): call ApplyDefaults first. A nested block whose field is a struct, and no
// pointer, has its defaults where the body leaves it out. Marks are ignored. An error names the path in the
// body, what was expected and what was given, never a value.
func Decode(v cty.Value, schema *Schema, into any) error {
	target := reflect.ValueOf(into)
	if target.Kind() != reflect.Pointer || target.IsNil() || target.Elem().Kind() != reflect.Struct {
		return fmt.Errorf("decode: expected a pointer to a struct, got %T", into)
	}
	v, _ = v.UnmarkDeep()
	if schema != nil {
		var err error
		if v, err = schema.Conform(v); err != nil {
			return decodeError(err)
		}
	}
	return decodeError(decoder{}.object(v, target.Elem(), nil))
}

func decodeError(err error) error {
	if err == nil {
		return nil
	}
	var pathErr cty.PathError
	if errors.As(err, &pathErr) {
		return fmt.Errorf("decode %s: %w", PathString(pathErr.Path), pathErr)
	}
	return fmt.Errorf("decode: %w", err)
}

// decoder fills Go values from cty values.
type decoder struct {
	lenient bool // unknown values count as missing
}

func (d decoder) object(v cty.Value, into reflect.Value, path cty.Path) error {
	if v.IsNull() {
		return nil
	}
	if !v.IsKnown() {
		return d.unknown(path)
	}
	if !v.Type().IsObjectType() && !v.Type().IsMapType() {
		return path.NewErrorf("expected an object, got %s", v.Type().FriendlyName())
	}
	fields, err := fieldsOf(into.Type())
	if err != nil {
		return err
	}
	for _, f := range fields {
		attr, ok := member(v, f.name)
		if f.block && f.typ.Kind() == reflect.Struct && (!ok || attr.IsNull()) {
			// It is always there: a body without the block has its defaults.
			schema, err := schemaOf(f.typ, nil)
			if err != nil {
				return err
			}
			attr, ok = schema.ApplyDefaults(cty.EmptyObjectVal), true
		}
		if !ok {
			continue
		}
		if err := d.value(attr, into.FieldByIndex(f.index),
			append(path.Copy(), cty.GetAttrStep{Name: f.name})); err != nil {
			return err
		}
	}
	return nil
}

func member(v cty.Value, name string) (cty.Value, bool) {
	if v.Type().IsObjectType() {
		if !v.Type().HasAttribute(name) {
			return cty.NilVal, false
		}
		return v.GetAttr(name), true
	}
	key := cty.StringVal(name)
	if !v.HasIndex(key).True() {
		return cty.NilVal, false
	}
	return v.Index(key), true
}

func (d decoder) unknown(path cty.Path) error {
	if d.lenient {
		return nil
	}
	return path.NewErrorf("the value is not known yet; it is only known once the block that gives it has started")
}

func (d decoder) value(v cty.Value, into reflect.Value, path cty.Path) error {
	switch into.Type() {
	case valueType:
		into.Set(reflect.ValueOf(v))
		return nil
	case anyType:
		native, err := native(v, path)
		if err == nil && native != nil {
			into.Set(reflect.ValueOf(native))
		}
		return err
	}
	if v.IsNull() {
		return nil
	}
	if !v.IsKnown() {
		return d.unknown(path)
	}
	if into.Kind() == reflect.Pointer {
		fresh := reflect.New(into.Type().Elem())
		if err := d.value(v, fresh.Elem(), path); err != nil {
			return err
		}
		into.Set(fresh)
		return nil
	}
	if into.Type() == refType {
		ref, err := RefOf(v)
		if err != nil {
			return path.NewError(err)
		}
		into.Set(reflect.ValueOf(ref))
		return nil
	}
	switch into.Kind() {
	case reflect.Struct:
		return d.object(v, into, path)
	case reflect.Slice:
		return d.slice(v, into, path)
	case reflect.Map:
		return d.mapping(v, into, path)
	default:
		return scalar(v, into, path)
	}
}

func (d decoder) slice(v cty.Value, into reflect.Value, path cty.Path) error {
	if t := v.Type(); !t.IsListType() && !t.IsSetType() && !t.IsTupleType() {
		return path.NewErrorf("expected a list, got %s", t.FriendlyName())
	}
	out := reflect.MakeSlice(into.Type(), v.LengthInt(), v.LengthInt())
	i := 0
	for it := v.ElementIterator(); it.Next(); i++ {
		_, elem := it.Element()
		if err := d.value(elem, out.Index(i),
			append(path.Copy(), cty.IndexStep{Key: cty.NumberIntVal(int64(i))})); err != nil {
			return err
		}
	}
	into.Set(out)
	return nil
}

func (d decoder) mapping(v cty.Value, into reflect.Value, path cty.Path) error {
	if t := v.Type(); !t.IsMapType() && !t.IsObjectType() {
		return path.NewErrorf("expected a map, got %s", t.FriendlyName())
	}
	out := reflect.MakeMap(into.Type())
	for it := v.ElementIterator(); it.Next(); {
		key, elem := it.Element()
		fresh := reflect.New(into.Type().Elem()).Elem()
		if err := d.value(elem, fresh, append(path.Copy(), cty.IndexStep{Key: key})); err != nil {
			return err
		}
		out.SetMapIndex(reflect.ValueOf(key.AsString()).Convert(into.Type().Key()), fresh)
	}
	into.Set(out)
	return nil
}

func scalar(v cty.Value, into reflect.Value, path cty.Path) error {
	isNumber := into.CanInt() || into.CanUint() || into.CanFloat()
	switch {
	case into.Type() == durationType:
		if v.Type() != cty.String {
			return path.NewErrorf("expected a duration like \"30s\", got %s", v.Type().FriendlyName())
		}
		dur, err := time.ParseDuration(v.AsString())
		if err != nil {
			return path.NewErrorf("expected a duration like \"30s\" or \"1h30m\"")
		}
		into.SetInt(int64(dur))
		return nil
	case into.Kind() == reflect.String && v.Type() == cty.String:
		into.SetString(v.AsString())
		return nil
	case into.Kind() == reflect.Bool && v.Type() == cty.Bool:
		into.SetBool(v.True())
		return nil
	case isNumber && v.Type() == cty.Number:
		return number(v.AsBigFloat(), into, path)
	}
	return path.NewErrorf("expected %s, got %s", into.Kind(), v.Type().FriendlyName())
}

func number(f *big.Float, into reflect.Value, path cty.Path) error {
	switch {
	case into.CanInt():
		i, acc := f.Int64()
		if acc != big.Exact || into.OverflowInt(i) {
			return path.NewErrorf("expected a whole number that fits into %s", into.Kind())
		}
		into.SetInt(i)
	case into.CanUint():
		u, acc := f.Uint64()
		if acc != big.Exact || into.OverflowUint(u) {
			return path.NewErrorf("expected a whole number of at least 0 that fits into %s", into.Kind())
		}
		into.SetUint(u)
	default:
		x, _ := f.Float64()
		if math.IsInf(x, 0) || into.OverflowFloat(x) {
			return path.NewErrorf("expected a number that fits into %s", into.Kind())
		}
		into.SetFloat(x)
	}
	return nil
}

// native turns a value into what encoding/json would have made of it. Whole numbers become int64.
func native(v cty.Value, path cty.Path) (any, error) {
	if v.IsNull() {
		return nil, nil
	}
	if !v.IsKnown() {
		return nil, path.NewErrorf("the value is not known yet")
	}
	t := v.Type()
	switch {
	case t == cty.String:
		return v.AsString(), nil
	case t == cty.Bool:
		return v.True(), nil
	case t == cty.Number:
		if i, acc := v.AsBigFloat().Int64(); acc == big.Exact {
			return i, nil
		}
		f, _ := v.AsBigFloat().Float64()
		if math.IsInf(f, 0) {
			return nil, path.NewErrorf("the number is too large")
		}
		return f, nil
	case t.IsMapType() || t.IsObjectType():
		out := make(map[string]any, v.LengthInt())
		for it := v.ElementIterator(); it.Next(); {
			key, elem := it.Element()
			n, err := native(elem, append(path.Copy(), cty.IndexStep{Key: key}))
			if err != nil {
				return nil, err
			}
			out[key.AsString()] = n
		}
		return out, nil
	case t.IsListType() || t.IsSetType() || t.IsTupleType():
		out := make([]any, 0, v.LengthInt())
		for it := v.ElementIterator(); it.Next(); {
			_, elem := it.Element()
			n, err := native(elem, append(path.Copy(), cty.IndexStep{Key: cty.NumberIntVal(int64(len(out)))}))
			if err != nil {
				return nil, err
			}
			out = append(out, n)
		}
		return out, nil
	}
	return nil, path.NewErrorf("%s has no Go value", t.FriendlyName())
}

// RefOf reads a reference from the object that the language makes of a block: it must have a known `address` and
// `kind`.
func RefOf(v cty.Value) (Ref, error) {
	v, _ = v.UnmarkDeep()
	address, ok := stringMember(v, "address")
	k, ok2 := stringMember(v, "kind")
	if !ok || !ok2 {
		return Ref{}, fmt.Errorf("expected a block, an object with address and kind")
	}
	return Ref{Address: address, Kind: kind.Kind(k), Values: v}, nil
}

func stringMember(v cty.Value, name string) (string, bool) {
	if v.IsNull() || !v.IsKnown() || !(v.Type().IsObjectType() || v.Type().IsMapType()) {
		return "", false
	}
	m, ok := member(v, name)
	if !ok || m.IsNull() || !m.IsKnown() || m.Type() != cty.String {
		return "", false
	}
	return m.AsString(), true
}

// Decode fills an outputs struct (for example outputs.Inference) from the block's values by tag. Values that are
// missing, null or not known yet leave the field as it is; a value of the wrong type is an error that names it.
func (r Ref) Decode(into any) error {
	target := reflect.ValueOf(into)
	if target.Kind() != reflect.Pointer || target.IsNil() || target.Elem().Kind() != reflect.Struct {
		return fmt.Errorf("decode the outputs of %s: expected a pointer to a struct, got %T", r.Address, into)
	}
	if r.Values == cty.NilVal {
		return nil
	}
	v, _ := r.Values.UnmarkDeep()
	if err := (decoder{lenient: true}).object(v, target.Elem(), nil); err != nil {
		return fmt.Errorf("%s: %w", r.Address, decodeError(err))
	}
	return nil
}
