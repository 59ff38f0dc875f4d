package spec

import (
	"fmt"
	"reflect"
	"time"

	"github.com/zclconf/go-cty/cty"
)

// Encode makes the value of a schema from a struct (or pointer to one) whose tags it was made from, for example a
// block's outputs. Nil pointers, slices and maps become null; durations become strings.
func Encode(schema *Schema, from any) (cty.Value, error) {
	rv := reflect.ValueOf(from)
	for rv.Kind() == reflect.Pointer && !rv.IsNil() {
		rv = rv.Elem()
	}
	if rv.Kind() != reflect.Struct {
		return cty.NilVal, fmt.Errorf("encode: expected a struct with `recipe` tags, got %T", from)
	}
	return encodeBody(schema, rv)
}

func encodeBody(schema *Schema, rv reflect.Value) (cty.Value, error) {
	fields, err := fieldsOf(rv.Type())
	if err != nil {
		return cty.NilVal, err
	}
	byName := make(map[string]field, len(fields))
	for _, f := range fields {
		byName[f.name] = f
	}
	out := make(map[string]cty.Value, len(schema.Attributes)+len(schema.Blocks))
	for _, a := range schema.Attributes {
		f, ok := byName[a.Name]
		if !ok {
			out[a.Name] = cty.NullVal(a.Type.WithoutOptionalAttributesDeep())
			continue
		}
		v, err := encodeValue(rv.FieldByIndex(f.index), a.Type)
		if err != nil {
			return cty.NilVal, fmt.Errorf("encode %s: %w", a.Name, err)
		}
		out[a.Name] = v
	}
	for _, b := range schema.Blocks {
		f, ok := byName[b.Name]
		if !ok {
			out[b.Name] = b.Null()
			continue
		}
		v, err := encodeBlock(b, rv.FieldByIndex(f.index))
		if err != nil {
			return cty.NilVal, fmt.Errorf("encode block %s: %w", b.Name, err)
		}
		out[b.Name] = v
	}
	return cty.ObjectVal(out), nil
}

func encodeBlock(b *Block, rv reflect.Value) (cty.Value, error) {
	if b.Nesting == Single {
		if rv.Kind() == reflect.Pointer {
			if rv.IsNil() {
				return b.Null(), nil
			}
			rv = rv.Elem()
		}
		return encodeBody(b.Schema, rv)
	}
	out := make([]cty.Value, rv.Len())
	for i := range out {
		elem := rv.Index(i)
		var err error
		if out[i], err = encodeBody(b.Schema, reflect.Indirect(elem)); err != nil {
			return cty.NilVal, err
		}
	}
	return b.list(out), nil
}

func encodeValue(rv reflect.Value, t cty.Type) (cty.Value, error) {
	v, err := valueOf(rv)
	if err != nil {
		return cty.NilVal, err
	}
	if v.IsNull() {
		return cty.NullVal(t.WithoutOptionalAttributesDeep()), nil
	}
	return Convert(v, t)
}

// valueOf makes the value whose type follows from the Go value alone.
func valueOf(rv reflect.Value) (cty.Value, error) {
	if !rv.IsValid() {
		return cty.NullVal(cty.DynamicPseudoType), nil
	}
	switch v := rv.Interface().(type) {
	case cty.Value:
		if v == cty.NilVal {
			return cty.NullVal(cty.DynamicPseudoType), nil
		}
		return v, nil
	case Ref:
		if v.Values != cty.NilVal {
			return v.Values, nil
		}
		if v.Address == "" {
			return cty.NullVal(cty.DynamicPseudoType), nil
		}
		return cty.ObjectVal(map[string]cty.Value{"address": cty.StringVal(v.Address),
			"kind": cty.StringVal(string(v.Kind))}), nil
	case time.Duration:
		return cty.StringVal(v.String()), nil
	}
	switch rv.Kind() {
	case reflect.Pointer, reflect.Interface:
		if rv.IsNil() {
			return cty.NullVal(cty.DynamicPseudoType), nil
		}
		return valueOf(rv.Elem())
	case reflect.String:
		return cty.StringVal(rv.String()), nil
	case reflect.Bool:
		return cty.BoolVal(rv.Bool()), nil
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		return cty.NumberIntVal(rv.Int()), nil
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return cty.NumberUIntVal(rv.Uint()), nil
	case reflect.Float32, reflect.Float64:
		if f := rv.Float(); f != f {
			return cty.NilVal, fmt.Errorf("NaN is not a number that a recipe can hold")
		}
		return cty.NumberFloatVal(rv.Float()), nil
	case reflect.Slice:
		return valueOfSlice(rv)
	case reflect.Map:
		return valueOfMap(rv)
	case reflect.Struct:
		return valueOfStruct(rv)
	}
	return cty.NilVal, fmt.Errorf("a Go value of type %s cannot be written in a recipe", rv.Type())
}

func valueOfSlice(rv reflect.Value) (cty.Value, error) {
	if rv.IsNil() {
		return cty.NullVal(cty.DynamicPseudoType), nil
	}
	out := make([]cty.Value, rv.Len())
	for i := range out {
		var err error
		if out[i], err = valueOf(rv.Index(i)); err != nil {
			return cty.NilVal, err
		}
	}
	return cty.TupleVal(out), nil
}

func valueOfMap(rv reflect.Value) (cty.Value, error) {
	if rv.IsNil() {
		return cty.NullVal(cty.DynamicPseudoType), nil
	}
	if rv.Type().Key().Kind() != reflect.String {
		return cty.NilVal, fmt.Errorf("a map must have string keys, got %s", rv.Type())
	}
	out := make(map[string]cty.Value, rv.Len())
	for _, key := range rv.MapKeys() {
		v, err := valueOf(rv.MapIndex(key))
		if err != nil {
			return cty.NilVal, err
		}
		out[key.String()] = v
	}
	return cty.ObjectVal(out), nil
}

func valueOfStruct(rv reflect.Value) (cty.Value, error) {
	fields, err := fieldsOf(rv.Type())
	if err != nil {
		return cty.NilVal, err
	}
	out := make(map[string]cty.Value, len(fields))
	for _, f := range fields {
		if out[f.name], err = valueOf(rv.FieldByIndex(f.index)); err != nil {
			return cty.NilVal, err
		}
	}
	return cty.ObjectVal(out), nil
}
