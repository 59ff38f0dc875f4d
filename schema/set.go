package schema

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/zclconf/go-cty/cty"

	"github.com/recipe-rl/recipe/schema/budget"
	"github.com/recipe-rl/recipe/schema/decode"
	"github.com/recipe-rl/recipe/schema/diagnostic"
	"github.com/recipe-rl/recipe/schema/input"
	"github.com/recipe-rl/recipe/schema/parse"
	"github.com/recipe-rl/recipe/sdk/kind"
	"github.com/recipe-rl/recipe/sdk/spec"
)

const settingExample = "--set trainer.grpo.policy.learning_rate=1e-6"

// settings are the values of Options.Set, and the blocks that they are for.
type settings struct {
	root     *module
	implicit *node // a block that can be set and is not in the file; nil: there is none
	files    *parse.Files
	budget   *budget.Budget
	shared   *decode.Shared

	made  []Setting
	diags hcl.Diagnostics
}

// setting is one value of Options.Set: of an attribute of a block of the recipe file, in place of what the file says.
type setting struct {
	of *settings

	raw  string   // the value's text
	file string   // the name under which diagnostics show the text
	at   string   // the whole path, as it was given
	path []string // in the block: names of nested blocks, the attribute, and names inside its object
}

// set puts the values of Options.Set into the bodies of the root's blocks, of the implicit one, too, before their
// expressions are resolved.
func (p *settings) set(texts []string) {
	for _, given := range texts {
		at, raw, ok := strings.Cut(given, "=")
		at = strings.TrimSpace(at)
		s := &setting{of: p, raw: raw, at: at, file: "<--set " + at + ">"}
		if !ok {
			s.problem("Invalid setting", fmt.Sprintf("expected ADDRESS.ATTRIBUTE=VALUE, for example %s", settingExample))
			continue
		}
		if d := parse.TooLarge(s.file, []byte(raw)); d != nil {
			p.diags = append(p.diags, d)
			continue
		}
		s.block(strings.Split(s.at, "."))
	}
}

func (s *setting) problem(summary, detail string) {
	if !strings.HasSuffix(detail, "?") {
		detail += "."
	}
	s.of.diags = append(s.of.diags, &hcl.Diagnostic{Severity: hcl.DiagError, Summary: summary,
		Detail: "--set " + s.at + ": " + detail})
}

// block finds the block that a setting speaks of.
func (s *setting) block(parts []string) {
	root := s.of.root
	n, length := root.named(parts)
	if i := s.of.implicit; i != nil && strings.HasPrefix(s.at+".", i.label+".") {
		n = i
	}
	switch {
	case parts[0] == "module":
		s.problem("Not in this file", "a block inside a module takes its values from the module's arguments: write "+
			"NAME = var.NAME there, and set it with --var NAME=VALUE")
		return
	case parts[0] == "var" || parts[0] == "variable":
		s.problem("Not a block", "a variable is set with --var NAME=VALUE")
		return
	case n == nil:
		known := root.settable()
		if s.of.implicit != nil {
			known = append(known, s.of.implicit.label)
		}
		detail := "the recipe has no such block; it has " + diagnostic.List(known)
		if similar := diagnostic.DidYouMean(strings.Join(parts[:min(len(parts), length)], "."), known); similar != "" {
			detail += "." + similar
		}
		s.problem("No such block", detail)
		return
	case len(parts) <= length || slices.Contains(parts[length:], ""):
		s.problem("Invalid setting", fmt.Sprintf("name an attribute of the block, for example %s", settingExample))
		return
	}
	s.path = parts[length:]
	if n.observer != nil {
		if config, err := decode.ObserverSchema(n.observer.Kind); err == nil { // else it is reported with the block
			n.observer.Body = s.body(n.observer.Body, config, s.path, false)
		}
		return
	}
	var config *spec.Schema
	if n.plugin != nil {
		config = n.plugin.Config
	}
	n.block.Body = s.body(n.block.Body, config, s.path, true)
	attrs := n.block.Body.Attributes
	n.block.Count, n.block.ForEach, n.block.DependsOn = attrs["count"], attrs["for_each"], attrs["depends_on"]
	if len(s.path) == 1 && (s.path[0] == "count" || s.path[0] == "for_each") {
		s.of.diags = append(s.of.diags, parse.BothRepeated(n.block.Count, n.block.ForEach)...)
	}
}

// named is the block whose address these parts begin with, and how many parts that takes.
func (m *module) named(parts []string) (*node, int) {
	length := 3
	switch {
	case parts[0] == "alert" || parts[0] == "evaluation":
		length = 2
	case parts[0] != "tracking" && len(parts) >= 3:
		return m.blocks[blockName{kind.Kind(parts[0]), parts[1], parts[2]}], length
	}
	address := strings.Join(parts[:min(length, len(parts))], ".")
	for _, n := range m.observers {
		if n.label == address {
			return n, length
		}
	}
	return nil, length
}

// settable are the addresses of the blocks of a file.
func (m *module) settable() []string {
	var out []string
	for _, b := range m.source.Blocks {
		out = append(out, blockName{b.Kind, b.Plugin, b.Name}.String())
	}
	for _, o := range m.source.Observers {
		out = append(out, o.Address())
	}
	return out
}

// body is a copy of a body with the value at a path. Names that the schema does not know are left for the decoder to
// report; a body without a schema takes any.
func (s *setting) body(old *hclsyntax.Body, schema *spec.Schema, path []string, top bool) *hclsyntax.Body {
	body, name := *old, path[0]
	body.Attributes, body.Blocks = maps.Clone(old.Attributes), slices.Clone(old.Blocks)
	inner, isBlock := s.nested(schema, name, top)
	switch {
	case isBlock && len(path) == 1:
		s.problem("Not an attribute", fmt.Sprintf("%s is a block: name one of its attributes, for example "+
			"--set %s.NAME=VALUE", name, s.at))
	case isBlock:
		s.inBlock(&body, inner, path, top)
	default:
		s.attribute(&body, schema, path)
	}
	return &body
}

// nested reports whether a name stands for a nested block, and gives its schema; nil: it is not known.
func (s *setting) nested(schema *spec.Schema, name string, top bool) (*spec.Schema, bool) {
	if schema != nil {
		if b := schema.Block(name); b != nil {
			return b.Schema, true
		}
	}
	if !top || !decode.IsMetaBlock(name) {
		return nil, false
	}
	return s.of.shared.MetaBlock(name), true
}

// inBlock sets a value in the only nested block of a name, which is made where there is none.
func (s *setting) inBlock(body *hclsyntax.Body, schema *spec.Schema, path []string, top bool) {
	found := -1
	for i, b := range body.Blocks {
		dynamic := b.Type == "dynamic" && len(b.Labels) == 1 && b.Labels[0] == path[0]
		if b.Type != path[0] && !dynamic {
			continue
		}
		if found >= 0 || dynamic {
			s.problem("Several blocks", fmt.Sprintf("there are several blocks %s there, or a dynamic one: change them in the "+
				"file, or give them a variable", path[0]))
			return
		}
		found = i
	}
	rng := s.place()
	made := &hclsyntax.Block{Type: path[0], TypeRange: rng, OpenBraceRange: rng, CloseBraceRange: rng,
		Body: &hclsyntax.Body{Attributes: hclsyntax.Attributes{}, SrcRange: rng, EndRange: rng}}
	if found < 0 {
		body.Blocks = append(body.Blocks, made)
	} else {
		*made = *body.Blocks[found]
		body.Blocks[found] = made
	}
	made.Body = s.body(made.Body, schema, path[1:], false)
}

// attribute sets an attribute, or a part of the object that is its value.
func (s *setting) attribute(body *hclsyntax.Body, schema *spec.Schema, path []string) {
	var a *spec.Attribute
	if schema != nil {
		a = schema.Attribute(path[0])
	}
	t := cty.DynamicPseudoType
	if a != nil && len(a.References) == 0 {
		t = a.Type
	}
	old := body.Attributes[path[0]]
	if len(path) > 1 && old != nil {
		if _, ok := budget.Plain(old.Expr).(*hclsyntax.ObjectConsExpr); !ok {
			s.problem("Not written out", fmt.Sprintf("%s is not written out as { … } in the file, so a part of it cannot be "+
				"set: set it whole, or give the file a variable", path[0]))
			return
		}
	}
	var whole hclsyntax.Expression
	if old != nil {
		whole = old.Expr
	}
	expr, ok := s.value(typeAt(t, path[1:]), expressionAt(whole, path[1:]))
	if !ok {
		return
	}
	secret := a != nil && a.Sensitive
	if !secret {
		s.of.files.Shown[s.file] = &hcl.File{Bytes: []byte(s.raw)}
	}
	s.of.made = append(s.of.made, Setting{At: s.at, Value: s.raw, Sensitive: secret})
	if expr, ok = s.within(whole, path[1:], expr); !ok {
		return
	}
	rng := s.place()
	body.Attributes[path[0]] = &hclsyntax.Attribute{Name: path[0], Expr: expr, SrcRange: rng, NameRange: rng,
		EqualsRange: rng}
}

// within is an expression with a value at a path inside of it.
func (s *setting) within(old hclsyntax.Expression, path []string,
	value hclsyntax.Expression) (hclsyntax.Expression, bool) {
	if len(path) == 0 {
		return value, true
	}
	rng := s.place()
	object := hclsyntax.ObjectConsExpr{SrcRange: rng, OpenRange: rng}
	if old != nil {
		written, ok := budget.Plain(old).(*hclsyntax.ObjectConsExpr)
		if !ok {
			s.problem("Not written out", fmt.Sprintf("what stands around %s is not written out as { … } in the file", path[0]))
			return nil, false
		}
		object = *written
		object.Items = slices.Clone(written.Items)
	}
	i := itemOf(&object, path[0])
	if i < 0 {
		i = len(object.Items)
		object.Items = append(object.Items, hclsyntax.ObjectConsItem{KeyExpr: &hclsyntax.ObjectConsKeyExpr{
			Wrapped: &hclsyntax.LiteralValueExpr{Val: cty.StringVal(path[0]), SrcRange: rng}}})
	}
	inner, ok := s.within(object.Items[i].ValueExpr, path[1:], value)
	object.Items[i].ValueExpr = inner
	return &object, ok
}

// itemOf is the index of the item of an object with this key; -1: there is none.
func itemOf(object *hclsyntax.ObjectConsExpr, name string) int {
	return slices.IndexFunc(object.Items, func(item hclsyntax.ObjectConsItem) bool {
		key, diags := item.KeyExpr.Value(nil)
		return !diags.HasErrors() && key.RawEquals(cty.StringVal(name))
	})
}

// expressionAt is the part of an expression at a path of objects that are written out; nil: there is none.
func expressionAt(expr hclsyntax.Expression, path []string) hclsyntax.Expression {
	for _, name := range path {
		if expr == nil {
			return nil
		}
		object, ok := budget.Plain(expr).(*hclsyntax.ObjectConsExpr)
		if !ok {
			return nil
		}
		i := itemOf(object, name)
		if i < 0 {
			return nil
		}
		expr = object.Items[i].ValueExpr
	}
	return expr
}

// typeAt is the type of a part of a value; dynamic where any is taken.
func typeAt(t cty.Type, path []string) cty.Type {
	for _, name := range path {
		switch {
		case t.IsObjectType() && t.HasAttribute(name):
			t = t.AttributeType(name)
		case t.IsMapType():
			t = t.ElementType()
		default:
			return cty.DynamicPseudoType
		}
	}
	return t
}

// value reads the text, as that of a variable on the command line: literal for a string, an expression for every other
// type. Where any type is taken, an expression is in brackets or quotes, a call, or has names of a recipe.
func (s *setting) value(t cty.Type, replaced hclsyntax.Expression) (hclsyntax.Expression, bool) {
	literal := &hclsyntax.LiteralValueExpr{Val: cty.StringVal(s.raw), SrcRange: s.place()}
	if t == cty.String && s.raw != "null" {
		return literal, true
	}
	expr, diags := hclsyntax.ParseExpression([]byte(s.raw), s.file, hcl.InitialPos)
	if t == cty.DynamicPseudoType && s.raw != "null" && (diags.HasErrors() || !s.computed(expr)) {
		literal.Val = input.Untyped(s.raw, replaced)
		return literal, true
	}
	if diags.HasErrors() {
		s.problem("Invalid value", fmt.Sprintf("%q is no value of type %s (%s). Strings inside lists and maps need quotes, "+
			"for example --set '%s=[\"a\", \"b\"]'", s.raw, t.FriendlyName(), diagnostic.LowerFirst(diags[0].Summary), s.at))
		return nil, false
	}
	if diags = s.of.budget.Guard(expr); diags.HasErrors() {
		s.of.diags = append(s.of.diags, diags...)
		return nil, false
	}
	return expr, true
}

// computed reports whether text where any type is taken is an expression.
func (s *setting) computed(expr hclsyntax.Expression) bool {
	_, call := expr.(*hclsyntax.FunctionCallExpr)
	return (call || input.Bracketed(s.raw) || len(expr.Variables()) > 0) && s.refers(expr)
}

// refers reports whether each name of an expression is one that expressions of a recipe use.
func (s *setting) refers(expr hclsyntax.Expression) bool {
	for _, t := range expr.Variables() {
		root := t.RootName()
		known := kind.Kind(root).Valid() || slices.Contains([]string{"var", "local", "module", "count", "each", "path"}, root)
		if !known || len(t) < 2 {
			return false
		}
	}
	return true
}

// place is the range of the text.
func (s *setting) place() hcl.Range {
	end := hcl.Pos{Line: 1, Column: 1 + len(s.raw), Byte: len(s.raw)}
	return hcl.Range{Filename: s.file, Start: hcl.InitialPos, End: end}
}
