package parse

import (
	"fmt"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/ext/typeexpr"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/zclconf/go-cty/cty"

	"github.com/recipe-rl/recipe/schema/diagnostic"
)

// Variable is a variable block.
type Variable struct {
	Name, Description string
	Type              cty.Type
	typed             bool
	Defaults          *typeexpr.Defaults
	Fallback          *hclsyntax.Attribute // default; nil: a value is required
	Broken            bool                 // its default is reported already
	Sensitive         bool
	NotNull           bool
	Validations       []Validation
	Header            hcl.Range
}

// Validation is the body of a validation, precondition or postcondition.
type Validation struct {
	Condition, Message *hclsyntax.Attribute
}

var variableAttributes = []string{"type", "default", "description", "sensitive", "nullable"}

func (s *Source) declareVariable(block *hclsyntax.Block) hcl.Diagnostics {
	v := &Variable{Name: block.Labels[0], Type: cty.DynamicPseudoType, Header: Header(block)}
	var diags hcl.Diagnostics
	switch v.Name {
	case "source", "count", "for_each", "depends_on":
		diags = append(diags, diagnostic.Problem(v.Header, "Reserved name",
			fmt.Sprintf("A variable cannot be named %q: that is an argument of every module block. Choose another name.",
				v.Name)))
	}
	for _, attr := range SortedAttributes(block.Body) {
		switch attr.Name {
		case "type":
			t, defaults, typeDiags := typeexpr.TypeConstraintWithDefaults(attr.Expr)
			diags = append(diags, typeDiags...)
			if !typeDiags.HasErrors() {
				v.Type, v.Defaults, v.typed = t, defaults, true
			}
		case "default":
			v.Fallback = attr
			if refs := attr.Expr.Variables(); len(refs) > 0 {
				v.Broken = true
				diags = append(diags, diagnostic.Problem(refs[0].SourceRange(), "Reference in a default", fmt.Sprintf(
					"The default of a variable may call functions but must not refer to other values. If it depends "+
						"on other values, use locals { %s = … } instead.", v.Name)))
			}
		case "description":
			v.Description = LiteralString(attr, &diags)
		case "sensitive":
			v.Sensitive = literalBool(attr, &diags)
		case "nullable":
			v.NotNull = !literalBool(attr, &diags)
		default:
			diags = append(diags, diagnostic.UnknownAttribute(attr, "a variable block", variableAttributes))
		}
	}
	for _, inner := range block.Body.Blocks {
		if inner.Type != "validation" || len(inner.Labels) > 0 {
			diags = append(diags, diagnostic.Problem(Header(inner), "Unknown block",
				fmt.Sprintf("A variable contains only validation { … } blocks, got %s.%s", inner.Type,
					diagnostic.DidYouMean(inner.Type, []string{"validation"}))))
			continue
		}
		rule, ruleDiags := ConditionBlock(inner)
		diags = append(diags, ruleDiags...)
		if rule.Condition != nil && rule.Message != nil {
			v.Validations = append(v.Validations, rule)
		}
	}
	s.Variables = append(s.Variables, v)
	return diags
}

// ConditionBlock reads the condition and error_message of a validation, precondition or postcondition.
func ConditionBlock(block *hclsyntax.Block) (Validation, hcl.Diagnostics) {
	diags := NoBlocks(block.Body, block.Type)
	rule := Validation{Condition: block.Body.Attributes["condition"],
		Message: block.Body.Attributes["error_message"]}
	for _, attr := range SortedAttributes(block.Body) {
		if attr != rule.Condition && attr != rule.Message {
			diags = append(diags, diagnostic.UnknownAttribute(attr, "a "+block.Type+" block",
				[]string{"condition", "error_message"}))
		}
	}
	if rule.Condition == nil || rule.Message == nil {
		diags = append(diags, diagnostic.Problem(Header(block), "Missing attribute",
			fmt.Sprintf(
				"A %s needs a condition (which must be true) and an error_message (what to do when it is false).",
				block.Type)))
	}
	return rule, diags
}

// ApplyDefaults guards against typeexpr, which panics when a value does not match the type of the defaults.
func (v *Variable) ApplyDefaults(given cty.Value) (out cty.Value) {
	defer func() {
		if recover() != nil {
			out = given // the conversion that follows reports it
		}
	}()
	return v.Defaults.Apply(given)
}

// Example shows how a value of the variable's type is written on the command line.
func (v *Variable) Example() string {
	example := `["a", "b"]`
	switch {
	case v.Type == cty.Number:
		return fmt.Sprintf("Write a number, for example --var %s=600.", v.Name)
	case v.Type == cty.Bool:
		return fmt.Sprintf("Write --var %[1]s=true or --var %[1]s=false.", v.Name)
	case v.Type.IsMapType() || v.Type.IsObjectType():
		example = `{ a = "b" }`
	}
	return fmt.Sprintf("Strings inside lists and maps need quotes, for example --var '%s=%s'.", v.Name, example)
}
