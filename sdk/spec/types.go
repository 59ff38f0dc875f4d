package spec

import (
	"fmt"

	"github.com/zclconf/go-cty/cty"
)

// Type is the type of a body of this schema: an object with one attribute for each attribute and nested block.
// References and dynamic values, and lists of blocks that hold any, are cty.DynamicPseudoType.
func (s *Schema) Type() cty.Type {
	types := make(map[string]cty.Type, len(s.Attributes)+len(s.Blocks))
	for _, a := range s.Attributes {
		types[a.Name] = a.Type.WithoutOptionalAttributesDeep()
	}
	for _, b := range s.Blocks {
		types[b.Name] = b.Type()
	}
	return cty.Object(types)
}

// Type is the type of what the block decodes to in its parent.
func (b *Block) Type() cty.Type {
	t := b.Schema.Type()
	switch {
	case b.Nesting == Single:
		return t
	case t.HasDynamicTypes():
		return cty.DynamicPseudoType
	default:
		return cty.List(t)
	}
}

// Attribute returns the attribute of that name, or nil.
func (s *Schema) Attribute(name string) *Attribute {
	for _, a := range s.Attributes {
		if a.Name == name {
			return a
		}
	}
	return nil
}

// Block returns the nested block of that name, or nil.
func (s *Schema) Block(name string) *Block {
	for _, b := range s.Blocks {
		if b.Name == name {
			return b
		}
	}
	return nil
}

// Conform makes v, an object or map, a value of exactly Type: what is missing becomes null, and values are converted
// ("3" to 3). Unknown values and marks stay. An attribute that the schema does not know, or a value that cannot be
// converted, is an error that names its path.
func (s *Schema) Conform(v cty.Value) (cty.Value, error) { return s.conform(v, nil) }

func (s *Schema) conform(v cty.Value, path cty.Path) (cty.Value, error) {
	if v == cty.NilVal || v.IsNull() {
		return cty.NullVal(s.Type()), nil
	}
	if !v.IsKnown() {
		return cty.UnknownVal(s.Type()).WithSameMarks(v), nil
	}
	if !v.Type().IsObjectType() && !v.Type().IsMapType() {
		return cty.NilVal, path.NewErrorf("expected an object, got %s", v.Type().FriendlyName())
	}
	v, marks := v.Unmark()
	given := v.AsValueMap()
	out := make(map[string]cty.Value, len(s.Attributes)+len(s.Blocks))
	for _, a := range s.Attributes {
		t := a.Type
		in, ok := given[a.Name]
		if !ok {
			out[a.Name] = cty.NullVal(t.WithoutOptionalAttributesDeep())
			continue
		}
		got, err := Convert(in, t)
		if err != nil {
			return cty.NilVal, append(path.Copy(), cty.GetAttrStep{Name: a.Name}).NewError(fmt.Errorf("expected %s: %w",
				t.FriendlyName(), err))
		}
		out[a.Name] = got
	}
	for _, b := range s.Blocks {
		got, err := b.conform(given[b.Name], append(path.Copy(), cty.GetAttrStep{Name: b.Name}))
		if err != nil {
			return cty.NilVal, err
		}
		out[b.Name] = got
	}
	for name := range given {
		if _, ok := out[name]; !ok {
			return cty.NilVal, path.NewErrorf("there is no attribute %q", name)
		}
	}
	return cty.ObjectVal(out).WithMarks(marks), nil
}

func (b *Block) conform(v cty.Value, path cty.Path) (cty.Value, error) {
	if b.Nesting == Single {
		return b.Schema.conform(v, path)
	}
	t := b.Type()
	if v == cty.NilVal || v.IsNull() {
		return b.list(nil), nil
	}
	if !v.IsKnown() {
		return cty.UnknownVal(t).WithSameMarks(v), nil
	}
	if !v.CanIterateElements() || v.Type().IsObjectType() || v.Type().IsMapType() {
		return cty.NilVal, path.NewErrorf("expected a list, got %s", v.Type().FriendlyName())
	}
	v, marks := v.Unmark()
	var out []cty.Value
	for it := v.ElementIterator(); it.Next(); {
		_, elem := it.Element()
		got, err := b.Schema.conform(elem, append(path.Copy(), cty.IndexStep{Key: cty.NumberIntVal(int64(len(out)))}))
		if err != nil {
			return cty.NilVal, err
		}
		out = append(out, got)
	}
	return b.list(out).WithMarks(marks), nil
}

// list joins the values of a list block: a list where their types must agree, a tuple where they may differ.
func (b *Block) list(values []cty.Value) cty.Value {
	t := b.Schema.Type()
	switch {
	case t.HasDynamicTypes():
		return cty.TupleVal(values)
	case len(values) == 0:
		return cty.ListValEmpty(t)
	default:
		return cty.ListVal(values)
	}
}

// Null is the value of an absent body or, for a list block, of none.
func (b *Block) Null() cty.Value {
	if b.Nesting == List {
		return b.list(nil)
	}
	return cty.NullVal(b.Type())
}

// ApplyDefaults fills every attribute of v that is null or missing with its default, in nested blocks that are present
// too. Unknown values and marks stay. The result is an object; attributes without a default stay as they are.
func (s *Schema) ApplyDefaults(v cty.Value) cty.Value {
	if v == cty.NilVal || v.IsNull() || !v.IsKnown() || !(v.Type().IsObjectType() || v.Type().IsMapType()) {
		return v
	}
	v, marks := v.Unmark()
	values := v.AsValueMap()
	if values == nil {
		values = map[string]cty.Value{}
	}
	for _, a := range s.Attributes {
		if a.Default == cty.NilVal {
			continue
		}
		if got, ok := values[a.Name]; !ok {
			values[a.Name] = a.Default
		} else if got.IsNull() {
			values[a.Name] = a.Default.WithSameMarks(got)
		}
	}
	for _, b := range s.Blocks {
		if got, ok := values[b.Name]; ok {
			values[b.Name] = b.applyDefaults(got)
		}
	}
	return cty.ObjectVal(values).WithMarks(marks)
}

func (b *Block) applyDefaults(v cty.Value) cty.Value {
	if b.Nesting == Single {
		return b.Schema.ApplyDefaults(v)
	}
	if v.IsNull() || !v.IsKnown() || !v.CanIterateElements() || v.LengthInt() == 0 {
		return v
	}
	v, marks := v.Unmark()
	out := make([]cty.Value, 0, v.LengthInt())
	for it := v.ElementIterator(); it.Next(); {
		_, elem := it.Element()
		out = append(out, b.Schema.ApplyDefaults(elem))
	}
	if v.Type().IsListType() {
		return cty.ListVal(out).WithMarks(marks)
	}
	return cty.TupleVal(out).WithMarks(marks)
}
