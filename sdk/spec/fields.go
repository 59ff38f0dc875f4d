package spec

import (
	"fmt"
	"reflect"
	"strings"
	"time"

	"github.com/zclconf/go-cty/cty"
)

// field is one tagged field of a Go struct.
type field struct {
	name   string // in the recipe
	goName string
	block  bool
	index  []int
	typ    reflect.Type
	tag    reflect.StructTag
}

var (
	refType      = reflect.TypeFor[Ref]()
	durationType = reflect.TypeFor[time.Duration]()
	valueType    = reflect.TypeFor[cty.Value]()
	anyType      = reflect.TypeFor[any]()
)

// fieldsOf lists the tagged fields of a struct, those of embedded structs included.
func fieldsOf(t reflect.Type) ([]field, error) {
	var fields []field
	for i := range t.NumField() {
		sf := t.Field(i)
		tag, tagged := sf.Tag.Lookup("recipe")
		if !tagged {
			if sf.Anonymous && sf.Type.Kind() == reflect.Struct {
				inner, err := fieldsOf(sf.Type)
				if err != nil {
					return nil, err
				}
				for _, f := range inner {
					f.index = append([]int{i}, f.index...)
					fields = append(fields, f)
				}
			}
			continue
		}
		name, option, _ := strings.Cut(tag, ",")
		if !sf.IsExported() {
			return nil, fmt.Errorf("%s.%s: a field with a `recipe` tag must be exported", t, sf.Name)
		}
		if option != "" && option != "block" {
			return nil, fmt.Errorf("%s.%s: `recipe` tag: expected \"name\" or \"name,block\", got %q", t, sf.Name, tag)
		}
		fields = append(fields, field{name: name, goName: sf.Name, block: option == "block", index: []int{i},
			typ: sf.Type, tag: sf.Tag})
	}
	return fields, nil
}

// typeOf gives the type that values of a Go type have in a recipe, and the format of the value or of its elements.
func typeOf(t reflect.Type) (cty.Type, string, error) {
	t = indirect(t)
	switch t {
	case refType, valueType, anyType:
		return cty.DynamicPseudoType, "", nil
	case durationType:
		return cty.String, FormatDuration, nil
	}
	switch t.Kind() {
	case reflect.String:
		return cty.String, "", nil
	case reflect.Bool:
		return cty.Bool, "", nil
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64,
		reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return cty.Number, FormatInteger, nil
	case reflect.Float32, reflect.Float64:
		return cty.Number, "", nil
	case reflect.Slice:
		return collectionOf(t, cty.List, FormatList)
	case reflect.Map:
		if t.Key().Kind() != reflect.String {
			return cty.NilType, "", fmt.Errorf("a map must have string keys, got %s", t)
		}
		return collectionOf(t, cty.Map, FormatMap)
	case reflect.Struct:
		ty, err := objectOf(t)
		return ty, "", err
	}
	return cty.NilType, "", fmt.Errorf("type %s cannot be written in a recipe; use string, bool, a "+
		"number, time.Duration, "+
		"a slice, a map with string keys, spec.Ref, cty.Value or any", t)
}

// collectionOf makes a list or map type. Elements of dynamic type may differ from each other, which no collection
// type can say: the whole is dynamic then, and the format keeps what it is.
func collectionOf(t reflect.Type, of func(cty.Type) cty.Type, format string) (cty.Type, string, error) {
	elem, elemFormat, err := typeOf(t.Elem())
	if err != nil {
		return cty.NilType, "", err
	}
	if elem.HasDynamicTypes() {
		return cty.DynamicPseudoType, format, nil
	}
	return of(elem), elemFormat, nil
}

// objectOf is the type of a struct that is written as an attribute. Its fields are optional unless tagged required.
func objectOf(t reflect.Type) (cty.Type, error) {
	fields, err := fieldsOf(t)
	if err != nil {
		return cty.NilType, err
	}
	if len(fields) == 0 {
		return cty.NilType, fmt.Errorf("struct %s has no field with a `recipe` tag", t)
	}
	types := make(map[string]cty.Type, len(fields))
	var optional []string
	for _, f := range fields {
		if f.block || f.tag.Get("reference") != "" {
			return cty.NilType,
				fmt.Errorf("%s.%s: blocks and references need the parent to be a block: tag it `recipe:\"…,block\"`", t,
					f.goName)
		}
		if types[f.name], _, err = typeOf(f.typ); err != nil {
			return cty.NilType, fmt.Errorf("%s.%s: %w", t, f.goName, err)
		}
		if f.tag.Get("required") != "true" {
			optional = append(optional, f.name)
		}
	}
	return cty.ObjectWithOptionalAttrs(types, optional), nil
}

func indirect(t reflect.Type) reflect.Type {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	return t
}

func isUnsigned(t reflect.Type) bool {
	switch indirect(t).Kind() {
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return true
	}
	return false
}

func splitComma(s string) []string {
	if s == "" {
		return nil
	}
	parts := strings.Split(s, ",")
	for i := range parts {
		parts[i] = strings.TrimSpace(parts[i])
	}
	return parts
}
