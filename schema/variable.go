package schema

import (
	"fmt"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/ext/typeexpr"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/zclconf/go-cty/cty"
	"github.com/zclconf/go-cty/cty/convert"

	"github.com/recipe-rl/recipe/schema/diagnostic"
	"github.com/recipe-rl/recipe/sdk/spec"
)

type variableDecl struct {
	name, description string
	typ               cty.Type
	typed             bool
	defaults          *typeexpr.Defaults
	fallback          *hclsyntax.Attribute // default; nil: a value is required
	broken            bool                 // its default is reported already
	sensitive         bool
	notNull           bool
	validations       []validationDecl
	header            hcl.Range
}

type validationDecl struct {
	condition, message *hclsyntax.Attribute
}

var variableAttributes = []string{"type", "default", "description", "sensitive", "nullable"}

func (s *source) declareVariable(block *hclsyntax.Block) hcl.Diagnostics {
	v := &variableDecl{name: block.Labels[0], typ: cty.DynamicPseudoType, header: header(block)}
	var diags hcl.Diagnostics
	switch v.name {
	case "source", "count", "for_each", "depends_on":
		diags = append(diags, diagnostic.Problem(v.header, "Reserved name",
			fmt.Sprintf("A variable cannot be named %q: that is an argument of every module block. Choose another name.",
				v.name)))
	}
	for _, attr := range sortedAttributes(block.Body) {
		switch attr.Name {
		case "type":
			t, defaults, typeDiags := typeexpr.TypeConstraintWithDefaults(attr.Expr)
			diags = append(diags, typeDiags...)
			if !typeDiags.HasErrors() {
				v.typ, v.defaults, v.typed = t, defaults, true
			}
		case "default":
			v.fallback = attr
			if refs := attr.Expr.Variables(); len(refs) > 0 {
				v.broken = true
				diags = append(diags, diagnostic.Problem(refs[0].SourceRange(), "Reference in a default", fmt.Sprintf(
					"The default of a variable may call functions but must not refer to other values. If it depends "+
						"on other values, use locals { %s = … } instead.", v.name)))
			}
		case "description":
			v.description = literalString(attr, &diags)
		case "sensitive":
			v.sensitive = literalBool(attr, &diags)
		case "nullable":
			v.notNull = !literalBool(attr, &diags)
		default:
			diags = append(diags, diagnostic.UnknownAttribute(attr, "a variable block", variableAttributes))
		}
	}
	for _, inner := range block.Body.Blocks {
		if inner.Type != "validation" || len(inner.Labels) > 0 {
			diags = append(diags, diagnostic.Problem(header(inner), "Unknown block",
				fmt.Sprintf("A variable contains only validation { … } blocks, got %s.%s", inner.Type,
					diagnostic.DidYouMean(inner.Type, []string{"validation"}))))
			continue
		}
		rule, ruleDiags := conditionBlock(inner)
		diags = append(diags, ruleDiags...)
		if rule.condition != nil && rule.message != nil {
			v.validations = append(v.validations, rule)
		}
	}
	s.variables = append(s.variables, v)
	return diags
}

// conditionBlock reads the condition and error_message of a validation, precondition or postcondition.
func conditionBlock(block *hclsyntax.Block) (validationDecl, hcl.Diagnostics) {
	diags := noBlocks(block.Body, block.Type)
	rule := validationDecl{condition: block.Body.Attributes["condition"],
		message: block.Body.Attributes["error_message"]}
	for _, attr := range sortedAttributes(block.Body) {
		if attr != rule.condition && attr != rule.message {
			diags = append(diags, diagnostic.UnknownAttribute(attr, "a "+block.Type+" block",
				[]string{"condition", "error_message"}))
		}
	}
	if rule.condition == nil || rule.message == nil {
		diags = append(diags, diagnostic.Problem(header(block), "Missing attribute",
			fmt.Sprintf(
				"A %s needs a condition (which must be true) and an error_message (what to do when it is false).",
				block.Type)))
	}
	return rule, diags
}

// variableValue turns a given value, or the default, into the variable's value: converted, checked, marked.
// On an error the value is unknown, so that expressions that use it are still checked.
func (ev *evaluation) variableValue(v *variableDecl, given cty.Value, at hcl.Range,
	ctx *hcl.EvalContext) (cty.Value, hcl.Diagnostics) {
	var diags hcl.Diagnostics
	broken := cty.UnknownVal(v.typ.WithoutOptionalAttributesDeep())
	if v.sensitive {
		broken = broken.Mark(Sensitive)
	}
	if given == cty.NilVal || (given.IsNull() && v.notNull && v.fallback != nil) {
		if v.fallback == nil {
			return broken, hcl.Diagnostics{diagnostic.Problem(v.header, "Variable without a value",
				fmt.Sprintf(
					"The variable %q has no default and no value. Pass --var %s=…, set it in a --var-file, set "+
						"RECIPE_VAR_%s, or give it a default.", v.name, v.name, v.name))}
		}
		if v.broken {
			return broken, nil
		}
		at = v.fallback.Expr.Range()
		if given, diags = v.fallback.Expr.Value(ctx); diags.HasErrors() {
			return broken, diagnostic.Placed(diags, at)
		}
	}
	if given.IsNull() && v.notNull {
		return broken, append(diags, diagnostic.Problem(at, "Null variable",
			fmt.Sprintf("The variable %q has nullable = false: give it a value.", v.name)))
	}
	if v.defaults != nil && !given.IsNull() {
		given = v.applyDefaults(given)
	}
	value, err := spec.Convert(given, v.typ)
	if err != nil {
		return broken, append(diags, diagnostic.Problem(at, "Wrong type",
			fmt.Sprintf("The variable %q expects %s, got %s: %s.", v.name, typeexpr.TypeString(v.typ),
				given.Type().FriendlyName(), err)))
	}
	if !v.sensitive { // a warning names attributes
		diags = append(diags, dropped(fmt.Sprintf("The variable %q", v.name), given, v.typ, at)...)
	} else {
		value = value.Mark(Sensitive)
	}
	return value, append(diags, ev.validateVariable(v, value, at, ctx)...)
}

// applyDefaults guards against typeexpr, which panics when a value does not match the type of the defaults.
func (v *variableDecl) applyDefaults(given cty.Value) (out cty.Value) {
	defer func() {
		if recover() != nil {
			out = given // the conversion that follows reports it
		}
	}()
	return v.defaults.Apply(given)
}

func (ev *evaluation) validateVariable(v *variableDecl, value cty.Value, at hcl.Range,
	functions *hcl.EvalContext) hcl.Diagnostics {
	var diags hcl.Diagnostics
	ctx := functions.NewChild()
	ctx.Variables = map[string]cty.Value{"var": cty.ObjectVal(map[string]cty.Value{v.name: value})}
	for _, rule := range v.validations {
		if foreign := foreignReference(v, rule); foreign != nil {
			diags = append(diags, foreign)
			continue
		}
		ok, message, ruleDiags := condition(rule.condition.Expr, rule.message.Expr, ctx)
		diags = append(diags, ruleDiags...)
		if !ok && !ruleDiags.HasErrors() {
			diags = append(diags, diagnostic.Problem(at, "Invalid value for a variable",
				fmt.Sprintf("%s\n\nThe validation is at %s.", message, diagnostic.At(rule.condition.SrcRange))))
		}
	}
	return diags
}

// foreignReference finds the first name in a validation other than the variable itself.
func foreignReference(v *variableDecl, rule validationDecl) *hcl.Diagnostic {
	for _, t := range append(rule.condition.Expr.Variables(), rule.message.Expr.Variables()...) {
		if name, ok := attrStep(t, 1); ok && t.RootName() == "var" && name == v.name {
			continue
		}
		return diagnostic.Problem(t.SourceRange(), "Reference to another value",
			fmt.Sprintf(
				"A validation of the variable %q may only refer to var.%s. For conditions on several values, use "+
					"lifecycle { precondition { … } } of a block.", v.name, v.name))
	}
	return nil
}

// condition evaluates a check. An unknown condition passes. Both parts are evaluated, so that errors in either are
// found.
func condition(cond, message hcl.Expression, ctx *hcl.EvalContext) (ok bool, text string, diags hcl.Diagnostics) {
	text = "The condition is false."
	m, messageDiags := message.Value(ctx)
	diags = append(diags, diagnostic.Placed(messageDiags, message.Range())...)
	if !messageDiags.HasErrors() {
		m, marks := m.UnmarkDeep()
		s, err := convert.Convert(m, cty.String)
		switch {
		case err != nil:
			diags = append(diags, diagnostic.Problem(message.Range(), "Wrong type", "An error_message is a string, got "+
				m.Type().FriendlyName()+"."))
		case len(marks) > 0:
			text = "The condition is false. (Its message is not shown: it contains sensitive values.)"
		case s.IsKnown() && !s.IsNull():
			text = s.AsString()
		}
	}
	c, condDiags := cond.Value(ctx)
	if diags = append(diags, diagnostic.Placed(condDiags, cond.Range())...); condDiags.HasErrors() {
		return true, text, diags
	}
	c, _ = c.UnmarkDeep()
	b, err := convert.Convert(c, cty.Bool)
	if err != nil || (b.IsKnown() && b.IsNull()) {
		got := c.Type().FriendlyName()
		if c.IsKnown() && c.IsNull() {
			got = "null"
		}
		return true, text, append(diags, diagnostic.Problem(cond.Range(), "Wrong type",
			"A condition is true or false, got "+got+"."))
	}
	return !b.IsKnown() || b.True(), text, diags
}

func attrStep(t hcl.Traversal, i int) (string, bool) {
	if i >= len(t) {
		return "", false
	}
	step, ok := t[i].(hcl.TraverseAttr)
	return step.Name, ok
}
