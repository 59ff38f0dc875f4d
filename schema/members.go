package schema

import (
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/zclconf/go-cty/cty"

	"github.com/recipe-rl/recipe/schema/decode"
	"github.com/recipe-rl/recipe/sdk/kind"
	"github.com/recipe-rl/recipe/sdk/spec"
)

// hasMember reports whether a reference to a block of the plugin has that attribute: one of its configuration, or an
// output.
func (s *PluginSchema) hasMember(name string) bool {
	return s.Config.Attribute(name) != nil || s.Config.Block(name) != nil ||
		(s.Outputs != nil && s.Outputs.Attribute(name) != nil)
}

func (s *PluginSchema) members() []string {
	names := append(decode.OutputNames(s.Outputs), "address", "kind")
	for _, a := range s.Config.Attributes {
		names = append(names, a.Name)
	}
	for _, b := range s.Config.Blocks {
		names = append(names, b.Name)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// refValue is the value of a reference to a block: its configuration, overlaid by its outputs, its address and kind.
// Blocks that it refers to in turn are reduced to address and kind: a value never holds the whole graph behind it, and
// a plugin never sees credentials of blocks that its own block does not name.
func refValue(b *Block, config, outputs cty.Value) cty.Value {
	if b.Schema == nil {
		return cty.DynamicVal
	}
	values := make(map[string]cty.Value, len(b.Schema.Config.Attributes)+len(b.Schema.Config.Blocks)+10)
	if config.Type().IsObjectType() && config.IsKnown() && !config.IsNull() {
		for it := config.ElementIterator(); it.Next(); {
			name, v := it.Element()
			values[name.AsString()] = v
		}
	}
	cutReferences(b.Schema.Config, values)
	if b.Schema.Outputs != nil {
		for _, a := range b.Schema.Outputs.Attributes {
			known := sameAs(b, a, values)
			values[a.Name] = outputValue(a, outputs)
			if known != cty.NilVal && outputs == cty.NilVal {
				values[a.Name] = known
			}
		}
	}
	values["address"] = cty.StringVal(b.Addr.String())
	values["kind"] = cty.StringVal(string(b.Addr.Kind))
	return cty.ObjectVal(values)
}

// sameAs is the value of an output that a block declares itself; cty.NilVal when it is not known before the block runs.
func sameAs(b *Block, output *spec.Attribute, values map[string]cty.Value) cty.Value {
	if b.Meta.External != nil || output.Sensitive {
		return cty.NilVal
	}
	for _, name := range output.SameAs {
		v, ok := values[name]
		switch {
		case !ok || v == cty.NilVal:
			return cty.NilVal
		case !v.IsKnown():
			return cty.NilVal
		case v.IsNull():
			continue
		}
		text, _ := v.Unmark()
		if text.Type() == cty.String && b.local(text.AsString()) {
			if a := b.Schema.Config.Attribute(name); a == nil || a.Format != spec.FormatModel ||
				!decode.IsModelPath(text.AsString()) {
				return cty.NilVal // a folder has another name on the server
			}
			v = cty.StringVal(filepath.Base(filepath.Clean(text.AsString()))).WithSameMarks(v)
		}
		if converted, err := spec.Convert(v, output.Type); err == nil {
			return converted
		}
		return cty.NilVal
	}
	return cty.NilVal
}

// Folder is the folder of the recipe, to which paths in the block are relative.
func (b *Block) Folder() string { return b.dir }

// local reports whether a name stands for a file or folder.
func (b *Block) local(name string) bool {
	if strings.HasPrefix(name, "~") || decode.IsFileName(name) {
		return true
	}
	_, err := os.Stat(filepath.Join(b.dir, name))
	return err == nil
}

func outputValue(a *spec.Attribute, outputs cty.Value) cty.Value {
	v := cty.UnknownVal(a.Type.WithoutOptionalAttributesDeep())
	if outputs != cty.NilVal && outputs.IsKnown() && !outputs.IsNull() && outputs.Type().IsObjectType() {
		if outputs.Type().HasAttribute(a.Name) {
			v = outputs.GetAttr(a.Name)
		} else {
			v = cty.NullVal(a.Type.WithoutOptionalAttributesDeep())
		}
	}
	if a.Sensitive {
		v = v.Mark(decode.Sensitive)
	}
	return v
}

func cutReferences(s *spec.Schema, values map[string]cty.Value) {
	for _, a := range s.Attributes {
		if v, ok := values[a.Name]; ok && len(a.References) > 0 {
			values[a.Name] = cut(v)
		}
	}
	for _, b := range s.Blocks {
		if v, ok := values[b.Name]; ok && hasReferences(b.Schema) {
			values[b.Name] = cutBlock(b, v)
		}
	}
}

func hasReferences(s *spec.Schema) bool {
	for _, a := range s.Attributes {
		if len(a.References) > 0 {
			return true
		}
	}
	return slices.ContainsFunc(s.Blocks, func(b *spec.Block) bool { return hasReferences(b.Schema) })
}

func cutBlock(b *spec.Block, v cty.Value) cty.Value {
	if !v.IsKnown() || v.IsNull() || v.IsMarked() {
		return v
	}
	if b.Nesting == spec.Single {
		inner := v.AsValueMap()
		cutReferences(b.Schema, inner)
		return cty.ObjectVal(inner)
	}
	var out []cty.Value
	for it := v.ElementIterator(); it.Next(); {
		_, elem := it.Element()
		inner := elem.AsValueMap()
		cutReferences(b.Schema, inner)
		out = append(out, cty.ObjectVal(inner))
	}
	return cty.TupleVal(out)
}

// cut reduces a reference, or a list of them, to address and kind.
func cut(v cty.Value) cty.Value {
	if v.IsMarked() || !v.IsKnown() || v.IsNull() {
		return v
	}
	t := v.Type()
	if t.IsTupleType() || t.IsListType() || t.IsSetType() {
		out := make([]cty.Value, 0, v.LengthInt())
		for it := v.ElementIterator(); it.Next(); {
			_, elem := it.Element()
			out = append(out, cut(elem))
		}
		return cty.TupleVal(out)
	}
	ref, err := spec.RefOf(v)
	if err != nil {
		return cty.DynamicVal
	}
	return shortRef(ref.Address, ref.Kind)
}

func shortRef(address string, k kind.Kind) cty.Value {
	return cty.ObjectVal(map[string]cty.Value{"address": cty.StringVal(address), "kind": cty.StringVal(string(k))})
}
