package lsp

import (
	"slices"
	"strings"
	"sync"

	"github.com/hashicorp/hcl/v2/ext/typeexpr"
	"github.com/zclconf/go-cty/cty"

	"github.com/recipe-rl/recipe/schema"
	"github.com/recipe-rl/recipe/schema/decode"
	"github.com/recipe-rl/recipe/schema/parse"
	"github.com/recipe-rl/recipe/sdk/kind"
	"github.com/recipe-rl/recipe/sdk/spec"
)

// language holds what the language itself declares; it is the same for every recipe.
type language struct {
	blocks map[string]*spec.Schema
	meta   map[kind.Kind]*spec.Schema
}

var grammar = sync.OnceValues(func() (*language, error) {
	blocks, err := decode.Declarations()
	if err != nil {
		return nil, err
	}
	l := &language{blocks: blocks, meta: map[kind.Kind]*spec.Schema{}}
	for _, k := range kind.All() {
		if l.meta[k], err = decode.MetaArguments(k); err != nil {
			return nil, err
		}
	}
	return l, nil
})

// plugin is the schema of a plugin as the recipe of a file knows it; nil when there is none.
func (v view) plugin(path string, k kind.Kind, name string) *schema.PluginSchema {
	plugins := v.plugins(path)
	if plugins == nil {
		return nil
	}
	s, err := plugins.Lookup(k, name)
	if err != nil {
		return nil // the diagnostics say so
	}
	return s
}

// plugins are those of the recipe that a file is part of, as of the last time that it was loaded: a request does not
// wait for that.
func (v view) plugins(path string) schema.Plugins {
	top := v.rootsOf(path, v.callers(v.snapshot))[0]
	r := v.root(top)
	if r.served.Load() == nil {
		v.analyze(v.snapshot, top) // tells a new catalog what the recipe requires
	}
	if p := r.served.Load(); p != nil {
		return p
	}
	return nil
}

// schemaOf describes what may stand between the braces of a block; nil when that is not known. Its documentation is
// that of the block. It is made for the caller, who must not change what it points to.
func (v view) schemaOf(path string, f *file, b *block) *spec.Schema {
	if b == nil {
		return nil
	}
	if b.parent == nil {
		return v.topSchema(path, f, b)
	}
	parent := v.schemaOf(path, f, b.parent)
	switch {
	case parent == nil:
		return nil
	case b.kind == "dynamic" && len(b.labels) == 1:
		return dynamicSchema(parent, b.labels[0].name)
	case parent.Block(b.kind) == nil:
		return nil
	}
	inner := parent.Block(b.kind).Schema
	if b.kind == "external" && b.parent.parent == nil {
		return v.externalSchema(path, b.parent, inner)
	}
	return inner
}

// dynamicSchema is that of the block `dynamic "NAME"`, whose content is a block NAME of the parent.
func dynamicSchema(parent *spec.Schema, name string) *spec.Schema {
	generated := parent.Block(name)
	if generated == nil {
		return nil
	}
	return &spec.Schema{Doc: "generates a block " + name + " for each element", Attributes: []*spec.Attribute{
		{Name: "for_each", Type: cty.DynamicPseudoType, Required: true,
			Doc: "list, set, map or object: one block for each element"},
		{Name: "iterator", Type: cty.DynamicPseudoType, Doc: "name of the current element in content; default: " + name},
	}, Blocks: []*spec.Block{{Name: "content", Nesting: spec.Single, Required: true, Schema: generated.Schema}}}
}

func (v view) topSchema(path string, f *file, b *block) *spec.Schema {
	l, err := grammar()
	if err != nil {
		return nil
	}
	k := kind.Kind(b.kind)
	switch {
	case b.kind == "module":
		return v.moduleSchema(path, f, b, l.blocks["module"])
	case !k.Valid():
		return l.blocks[b.kind]
	}
	out := *l.meta[k]
	if len(b.labels) == 0 {
		return &out
	}
	if p := v.plugin(path, k, b.labels[0].name); p != nil && p.Config != nil {
		out.Doc = p.Summary
		if p.Config.Doc != "" {
			out.Doc += "\n\n" + p.Config.Doc
		}
		out.Attributes = slices.Concat(p.Config.Attributes, out.Attributes)
		out.Blocks = slices.Concat(p.Config.Blocks, out.Blocks)
	}
	return &out
}

// moduleSchema adds the variables of the module.
func (v view) moduleSchema(path string, f *file, b *block, own *spec.Schema) *spec.Schema {
	out := *own
	for _, c := range v.moduleCalls(f, path) {
		if c.block != b || c.target == "" {
			continue
		}
		child := v.file(v.snapshot, c.target)
		if child == nil {
			continue
		}
		out.Attributes = slices.Clone(out.Attributes)
		for _, s := range child.declarations(c.target, variable) {
			p, declaration := child.blockNamed(s)
			out.Attributes = append(out.Attributes, variableOf(s.name, p, declaration))
		}
	}
	return &out
}

// variableOf reads what a variable block says, without evaluating more than its type.
func variableOf(name string, p part, b *block) *spec.Attribute {
	out := &spec.Attribute{Name: name, Type: cty.DynamicPseudoType, Required: b.attribute("default") == nil}
	if a := b.attribute("type"); a != nil {
		expr, diags := parse.Expression("", []byte(a.value.of(p.src)))
		if !diags.HasErrors() {
			if t, _, diags := typeexpr.TypeConstraintWithDefaults(expr); !diags.HasErrors() {
				out.Type = t
			}
		}
	}
	if a := b.attribute("description"); a != nil {
		out.Doc = strings.Trim(a.value.of(p.src), `"`)
	}
	if a := b.attribute("default"); a != nil {
		if value, err := parse.Constant("", []byte(a.value.of(p.src))); err == nil {
			out.Default = value
		}
	}
	if a := b.attribute("sensitive"); a != nil {
		if out.Sensitive = a.value.of(p.src) == "true"; out.Sensitive {
			out.Default = cty.NilVal // it is not to be shown either
		}
	}
	return out
}

// externalSchema adds the outputs of the block, which external sets.
func (v view) externalSchema(path string, b *block, own *spec.Schema) *spec.Schema {
	out := *own
	if p := v.pluginOf(path, b); p != nil && p.Outputs != nil {
		out.Attributes = slices.Clone(out.Attributes)
		for _, a := range p.Outputs.Attributes {
			set := *a
			set.Computed = false
			out.Attributes = append(out.Attributes, &set)
		}
	}
	return &out
}

// pluginOf is the plugin of a top-level block of a kind.
func (v view) pluginOf(path string, b *block) *schema.PluginSchema {
	if k := kind.Kind(b.kind); k.Valid() && len(b.labels) > 0 {
		return v.plugin(path, k, b.labels[0].name)
	}
	return nil
}
