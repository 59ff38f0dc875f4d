// Package decode evaluates the bodies of blocks against schemas: what a plugin is configured with, the meta-arguments
// of
// every block, alerts and tracking blocks. It reports what does not fit at the character that is wrong. What
// expressions
// refer to is not known here: Values evaluates them.
package decode

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/zclconf/go-cty/cty"

	"github.com/recipe-rl/recipe/schema/addr"
	"github.com/recipe-rl/recipe/schema/diagnostic"
	"github.com/recipe-rl/recipe/schema/function"
	"github.com/recipe-rl/recipe/schema/parse"
	"github.com/recipe-rl/recipe/sdk/kind"
	"github.com/recipe-rl/recipe/sdk/spec"
)

// MaxInstances is how many instances one block, module or dynamic block has at most.
const MaxInstances = 10_000

// Decoder evaluates the bodies of one block: what its plugin is configured with, and its meta-arguments.
type Decoder struct {
	Shared   *Shared
	Values   Values
	Target   Target
	Ctx      *hcl.EvalContext // of its expressions
	Header   hcl.Range
	Label    string
	Fallback map[string]cty.Value // for attributes that are not set
	Running  bool                 // blocks have outputs: files were looked at when the recipe was loaded

	Diags   hcl.Diagnostics
	Reads   []Content         // beside the recipe
	part    string            // attribute or nested block of the block that is decoded
	claimed []claim           // of the attributes decoded so far
	badRows map[string]bool   // places of rows with a mistake that is reported
	rows    map[string]string // files that attributes of the block name, by attribute
}

// Shared is what all blocks of a recipe are decoded with.
type Shared struct {
	meta *metaSchemas
	code *codeFiles
	hide func(cty.Value) // keeps the texts in a value out of messages
}

// NewShared makes it for a recipe beside these files. hide keeps the texts in a value out of messages.
func NewShared(files *function.Files, hide func(cty.Value)) (*Shared, error) {
	meta, err := newMetaSchemas()
	return &Shared{meta: meta, code: &codeFiles{files: files}, hide: hide}, err
}

// Values evaluates the expressions of one block.
type Values interface {
	// Value is the value of an expression; unknown after an error.
	Value(expr hclsyntax.Expression, ctx *hcl.EvalContext) (cty.Value, hcl.Diagnostics)
	// Bad reports whether an expression has a name that does not exist, which has been reported.
	Bad(expr hclsyntax.Expression) bool
	// Blamed says whether an expression without a known value has none because something that it uses is wrong, which
	// has been reported: a variable without a value, a local with a mistake. Else it waits for outputs of blocks.
	Blamed(expr hclsyntax.Expression, ctx *hcl.EvalContext) bool
	// Enough reports whether so many mistakes were found that no more are looked for.
	Enough() bool
	// Block returns the label of the block that the expressions call KIND.PLUGIN.NAME, and the schema of its plugin; nil:
	// there is no such block, or its plugin is not known.
	Block(k kind.Kind, plugin, name string) (label string, config *spec.Schema)
}

// Target is what a block is decoded against. The schemas of a plugin that is not known are nil.
type Target struct {
	Kind            kind.Kind
	Plugin          string
	Config, Outputs *spec.Schema
	OneMachine      bool // its blocks cannot have several machines
	// Validate asks the plugin for mistakes that a schema cannot express. nil: it cannot be asked
	Validate func(config cty.Value) ([]spec.Problem, error)
}

func (d *Decoder) report(diags ...*hcl.Diagnostic) { d.Diags = append(d.Diags, diags...) }

// Config decodes the plugin's part of a top-level block. The plugin must be known.
func (d *Decoder) Config(body *hclsyntax.Body) cty.Value {
	v := d.body(d.Target.Config, body, d.Ctx, d.Label, d.Header, true)
	d.columns(body)
	return v
}

// Observer decodes the body of an alert, an evaluation or a tracking block.
func (d *Decoder) Observer(s *spec.Schema, body *hclsyntax.Body) cty.Value {
	return d.body(s, body, d.Ctx, d.Label, d.Header, false)
}

// body evaluates a body to an object of the schema's type. Invalid parts are reported and become unknown.
func (d *Decoder) body(s *spec.Schema, body *hclsyntax.Body, ctx *hcl.EvalContext, where string, at hcl.Range,
	top bool) cty.Value {
	values := make(map[string]cty.Value, len(s.Attributes)+len(s.Blocks))
	used := 0
	for _, a := range s.Attributes {
		if body.Attributes[a.Name] != nil {
			used++
		}
		d.enter(a.Name, top)
		values[a.Name] = d.attribute(a, body, ctx, where, at, top)
	}
	if used < len(body.Attributes) {
		d.leftAttributes(s, body, where, top)
	}
	for _, b := range s.Blocks {
		d.enter(b.Name, top)
		values[b.Name] = d.blocks(b, body, ctx, where, at)
	}
	if len(body.Blocks) > 0 {
		d.leftBlocks(s, body, where, top)
	}
	d.oneOf(s, values, where, at)
	return cty.ObjectVal(values)
}

// oneOf reports a set of attributes and blocks of which a body has not exactly one.
func (d *Decoder) oneOf(s *spec.Schema, values map[string]cty.Value, where string, at hcl.Range) {
	for _, names := range s.OneOf {
		var set, quoted []string
		known := true
		for _, name := range names {
			quoted = append(quoted, strconv.Quote(name))
			v, _ := values[name].Unmark()
			switch {
			case v == cty.NilVal || v.IsNull():
			case !v.IsKnown():
				known = false
			case s.Block(name) != nil && v.CanIterateElements() && v.LengthInt() == 0:
			default:
				set = append(set, strconv.Quote(name))
			}
		}
		if !known || len(set) == 1 {
			continue
		}
		given := "got none of them"
		if len(set) > 0 {
			given = "got " + strings.Join(set, " and ")
		}
		d.report(diagnostic.Problem(at, "Not exactly one", fmt.Sprintf("%s expects exactly one of %s; %s.", where,
			strings.Join(quoted, " and "), given)))
	}
}

func (d *Decoder) attribute(a *spec.Attribute, body *hclsyntax.Body, ctx *hcl.EvalContext, where string,
	at hcl.Range, top bool) cty.Value {
	attr := body.Attributes[a.Name]
	t := a.Type.WithoutOptionalAttributesDeep()
	if attr == nil {
		if v, ok := d.Fallback[a.Name]; ok && top {
			return v
		}
		if a.Required {
			d.problems(a.Check(cty.NilVal, nil), nil, at, where)
			return cty.UnknownVal(t)
		}
		if a.Default != cty.NilVal {
			d.claims(a, a.Default, nil, where)
			return d.mark(a, a.Default)
		}
		return d.mark(a, cty.NullVal(t))
	}
	if a.Computed {
		d.report(diagnostic.Problem(attr.NameRange, "Read-only attribute",
			fmt.Sprintf("%q in %s is an output: the block sets it when it runs. Remove it here; other blocks can "+
				"refer to it.", a.Name, where)))
		return cty.UnknownVal(t)
	}
	if a.Deprecated != "" {
		d.report(diagnostic.Warning(attr.NameRange, "Deprecated attribute", fmt.Sprintf("%q in %s is deprecated: %s.", a.Name,
			where, a.Deprecated)))
	}
	var v cty.Value
	if len(a.References) > 0 {
		v = d.reference(a, attr.Expr, ctx)
	} else {
		var diags hcl.Diagnostics
		v, diags = d.Values.Value(attr.Expr, ctx)
		d.report(diags...)
	}
	if problems := a.Check(v, nil); len(problems) > 0 {
		d.problems(problems, attr.Expr, attr.Expr.Range(), where)
		return d.mark(a, cty.UnknownVal(t))
	}
	if v.IsNull() && a.Default != cty.NilVal {
		v = a.Default.WithSameMarks(v)
	}
	if converted, err := spec.Convert(v, a.Type); err == nil {
		if !a.Sensitive { // a warning names attributes
			d.report(Dropped(fmt.Sprintf("%q in %s", a.Name, where), v, a.Type, attr.Expr.Range())...)
		}
		v = d.pin(a, converted, attr, where)
		d.content(a, v, attr, body, where)
		d.model(a, v, attr, body, where)
		d.claims(a, v, attr, where)
		d.perTask(a, v, attr, where)
	} else {
		d.report(diagnostic.Problem(attr.Expr.Range(), "Wrong type", fmt.Sprintf("%q in %s expects %s: %s.", a.Name, where,
			a.Friendly(), err)))
		v = cty.UnknownVal(t)
	}
	return d.mark(a, v)
}

func (d *Decoder) mark(a *spec.Attribute, v cty.Value) cty.Value {
	if a.Sensitive {
		return v.Mark(Sensitive)
	}
	return v
}

// problems turns problems found by a schema's checks into diagnostics, each at the part of the expression it concerns.
func (d *Decoder) problems(problems []spec.Problem, expr hclsyntax.Expression, at hcl.Range, where string) {
	for _, p := range problems {
		rng := at
		if expr != nil {
			rng = descend(expr, p.Path).Range()
		}
		diag := diagnostic.Problem(rng, p.Summary, fmt.Sprintf("In %s: %s", where, diagnostic.LowerFirst(p.Detail)))
		if p.Warning {
			diag.Severity = hcl.DiagWarning
		}
		d.report(diag)
	}
}

// descend follows a path into list and object expressions, as far as they are written out.
func descend(expr hclsyntax.Expression, path cty.Path) hclsyntax.Expression {
	for _, step := range path {
		next := child(expr, step)
		if next == nil {
			return expr
		}
		expr = next
	}
	return expr
}

func child(expr hclsyntax.Expression, step cty.PathStep) hclsyntax.Expression {
	key := cty.NilVal
	switch step := step.(type) {
	case cty.GetAttrStep:
		key = cty.StringVal(step.Name)
	case cty.IndexStep:
		key = step.Key
	}
	switch e := expr.(type) {
	case *hclsyntax.ParenthesesExpr:
		return child(e.Expression, step)
	case *hclsyntax.TupleConsExpr:
		if k, ok := addr.KeyOf(key); ok {
			if i, ok := k.Int(); ok && i < len(e.Exprs) {
				return e.Exprs[i]
			}
		}
	case *hclsyntax.ObjectConsExpr:
		for _, item := range e.Items {
			name, diags := item.KeyExpr.Value(nil)
			if !diags.HasErrors() && name.RawEquals(key) {
				return item.ValueExpr
			}
		}
	}
	return nil
}

// leftAttributes reports attributes that the schema does not know.
func (d *Decoder) leftAttributes(s *spec.Schema, body *hclsyntax.Body, where string, top bool) {
	for _, attr := range parse.SortedAttributes(body) {
		if s.Attribute(attr.Name) != nil || (top && slices.Contains(metaAttributes, attr.Name)) {
			continue
		}
		if s.Block(attr.Name) != nil || (top && slices.Contains(metaBlocks, attr.Name)) {
			d.report(diagnostic.Problem(attr.NameRange, "Block expected",
				fmt.Sprintf("%q in %s is a block: write %s { … } without the equals sign.%s", attr.Name, where,
					attr.Name, d.contents(s.Block(attr.Name)))))
			continue
		}
		d.report(diagnostic.UnknownAttribute(attr, where, d.known(s, top)))
	}
}

func (d *Decoder) leftBlocks(s *spec.Schema, body *hclsyntax.Body, where string, top bool) {
	for _, block := range body.Blocks {
		name := block.Type
		if name == "dynamic" {
			if len(block.Labels) != 1 {
				d.report(diagnostic.Problem(parse.Header(block), "Wrong number of labels",
					`The label of a dynamic block is the block that it generates: write dynamic "rule" { `+
						`for_each = … content { … } }.`))
				continue
			}
			name = block.Labels[0]
		} else if len(block.Labels) > 0 {
			d.report(diagnostic.Problem(parse.Header(block), "Wrong number of labels",
				fmt.Sprintf("A block %s in %s takes no label: write %s { … }.%s", name, where, name,
					d.contents(s.Block(name)))))
			continue
		}
		if top && block.Type == "dynamic" && slices.Contains(metaBlocks, name) {
			d.report(diagnostic.Problem(block.LabelRanges[0], "Block cannot be dynamic",
				fmt.Sprintf("A dynamic block cannot generate %s. Write the block out; its values may be conditional.",
					name)))
			continue
		}
		if s.Block(name) != nil || (top && slices.Contains(metaBlocks, name) && block.Type != "dynamic") {
			continue
		}
		at := block.TypeRange
		if block.Type == "dynamic" {
			at = block.LabelRanges[0]
		}
		if s.Attribute(name) != nil || (top && slices.Contains(metaAttributes, name)) {
			d.report(diagnostic.Problem(at, "Attribute expected",
				fmt.Sprintf("%q in %s is an attribute: write %s = … with an equals sign.", name, where, name)))
			continue
		}
		known := slices.Sorted(slices.Values(d.known(s, top)))
		hint := diagnostic.DidYouMean(name, known)
		if hint == "" {
			hint = fmt.Sprintf(" It takes %s.", diagnostic.List(known))
		}
		d.report(diagnostic.Problem(at, "Unknown block", fmt.Sprintf("There is no block %q in %s.%s", name, where, hint)))
	}
}

func (d *Decoder) known(s *spec.Schema, top bool) []string {
	var names []string
	for _, a := range s.Attributes {
		if !a.Computed {
			names = append(names, a.Name)
		}
	}
	for _, b := range s.Blocks {
		names = append(names, b.Name)
	}
	if top {
		names = append(names, metaAttributes...)
		for _, name := range metaBlocks { // what blocks of another kind alone take is no advice
			if name != "stop_when" || d.Target.Kind == kind.Trainer {
				names = append(names, name)
			}
		}
	}
	return names
}

// contents describes what is written in a nested block; nothing of one that the schema does not have.
func (d *Decoder) contents(b *spec.Block) string {
	if b == nil {
		return ""
	}
	return fmt.Sprintf(" It takes %s.", diagnostic.List(d.known(b.Schema, false)))
}

// blocks decodes all nested blocks of one name, dynamic ones among them.
func (d *Decoder) blocks(b *spec.Block, body *hclsyntax.Body, ctx *hcl.EvalContext, where string,
	at hcl.Range) cty.Value {
	var values []cty.Value
	var second *hclsyntax.Block
	known := true
	for _, block := range body.Blocks {
		switch {
		case block.Type == b.Name && len(block.Labels) == 0:
			values = append(values, d.body(b.Schema, block.Body, ctx, b.Name, parse.Header(block), false))
		case block.Type == "dynamic" && len(block.Labels) == 1 && block.Labels[0] == b.Name:
			more, ok := d.dynamic(b, block, ctx)
			known = known && ok
			values = append(values, more...)
		default:
			continue
		}
		if len(values) > 1 && second == nil {
			second = block
		}
	}
	if b.Nesting == spec.Single && second != nil {
		d.report(diagnostic.Problem(parse.Header(second), "Block repeated",
			fmt.Sprintf("%s takes at most one block %s: merge them.",
				where, b.Name)))
		values = values[:1]
	}
	switch {
	case !known:
		return cty.UnknownVal(b.Type())
	case len(values) == 0 && b.Required:
		d.report(diagnostic.Problem(at, "Missing block", fmt.Sprintf("%s needs a block %s: write %s { … }.", where, b.Name,
			b.Name)))
		return cty.UnknownVal(b.Type())
	case len(values) == 0:
		return b.Null()
	case b.Nesting == spec.Single:
		return values[0]
	case b.Type() == cty.DynamicPseudoType:
		return cty.TupleVal(values)
	}
	return cty.ListVal(values)
}

// dynamic expands a dynamic block. Not ok: its for_each is not known yet.
func (d *Decoder) dynamic(b *spec.Block, block *hclsyntax.Block, ctx *hcl.EvalContext) (values []cty.Value, ok bool) {
	forEach := block.Body.Attributes["for_each"]
	for _, attr := range parse.SortedAttributes(block.Body) {
		if attr.Name != "for_each" && attr.Name != "iterator" {
			d.report(diagnostic.UnknownAttribute(attr, "a dynamic block", []string{"for_each", "iterator"}))
		}
	}
	var content *hclsyntax.Block
	for _, inner := range block.Body.Blocks {
		if inner.Type == "content" && content == nil {
			content = inner
		} else {
			d.report(diagnostic.Problem(parse.Header(inner), "Unknown block", "A dynamic block contains exactly one block "+
				"content "+
				"{ … }."))
		}
	}
	if forEach == nil || content == nil {
		d.report(diagnostic.Problem(parse.Header(block), "Incomplete dynamic block",
			fmt.Sprintf("Write dynamic %q { for_each = …  content { … } }.", b.Name)))
		return nil, true
	}
	v, diags := d.Values.Value(forEach.Expr, ctx)
	d.report(diags...)
	v, marks := v.Unmark()
	if !v.IsKnown() {
		return nil, false
	}
	if v.IsNull() || !v.CanIterateElements() {
		d.report(diagnostic.Problem(forEach.Expr.Range(), "Invalid for_each",
			"for_each of a dynamic block is a list, set, map or object, got "+diagnostic.Describe(v)+"."))
		return nil, true
	}
	if v.LengthInt() > MaxInstances {
		d.report(diagnostic.Problem(forEach.Expr.Range(), "Too many instances",
			fmt.Sprintf("for_each has at most %d elements, got %d.", MaxInstances, v.LengthInt())))
		return nil, true
	}
	iterator := parse.Iterator(block)
	for it := v.ElementIterator(); it.Next(); {
		key, elem := it.Element()
		if v.Type().IsSetType() {
			key = elem
		}
		inner := ctx.NewChild()
		inner.Variables = map[string]cty.Value{iterator: cty.ObjectVal(map[string]cty.Value{"key": key.WithMarks(marks),
			"value": elem.WithMarks(marks)})}
		values = append(values, d.body(b.Schema, content.Body, inner, b.Name, parse.Header(content), false))
	}
	return values, true
}
