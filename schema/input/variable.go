package input

import (
	"fmt"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/ext/typeexpr"
	"github.com/zclconf/go-cty/cty"

	"github.com/recipe-rl/recipe/schema/decode"
	"github.com/recipe-rl/recipe/schema/diagnostic"
	"github.com/recipe-rl/recipe/schema/parse"
	"github.com/recipe-rl/recipe/sdk/spec"
)

// ValueOf turns a given value, or the default, into the variable's value: converted, checked, marked.
// On an error the value is unknown, so that expressions that use it are still checked.
func ValueOf(v *parse.Variable, given cty.Value, at hcl.Range,
	ctx *hcl.EvalContext) (cty.Value, hcl.Diagnostics) {
	var diags hcl.Diagnostics
	broken := cty.UnknownVal(v.Type.WithoutOptionalAttributesDeep())
	if v.Sensitive {
		broken = broken.Mark(decode.Sensitive)
	}
	if given == cty.NilVal || (given.IsNull() && v.NotNull && v.Fallback != nil) {
		if v.Fallback == nil {
			return broken, hcl.Diagnostics{diagnostic.Problem(v.Header, "Variable without a value",
				fmt.Sprintf(
					"The variable %q has no default and no value. Pass --var %s=…, set it in a --var-file, set "+
						"RECIPE_VAR_%s, or give it a default.", v.Name, v.Name, v.Name))}
		}
		if v.Broken {
			return broken, nil
		}
		at = v.Fallback.Expr.Range()
		if given, diags = v.Fallback.Expr.Value(ctx); diags.HasErrors() {
			return broken, diagnostic.Placed(diags, at)
		}
	}
	if given.IsNull() && v.NotNull {
		return broken, append(diags, diagnostic.Problem(at, "Null variable",
			fmt.Sprintf("The variable %q has nullable = false: give it a value.", v.Name)))
	}
	if v.Defaults != nil && !given.IsNull() {
		given = v.ApplyDefaults(given)
	}
	value, err := spec.Convert(given, v.Type)
	if err != nil {
		return broken, append(diags, diagnostic.Problem(at, "Wrong type",
			fmt.Sprintf("The variable %q expects %s, got %s: %s.", v.Name, typeexpr.TypeString(v.Type),
				given.Type().FriendlyName(), err)))
	}
	if !v.Sensitive { // a warning names attributes
		diags = append(diags, decode.Dropped(fmt.Sprintf("The variable %q", v.Name), given, v.Type, at)...)
	} else {
		value = value.Mark(decode.Sensitive)
	}
	return value, append(diags, validateVariable(v, value, at, ctx)...)
}

func validateVariable(v *parse.Variable, value cty.Value, at hcl.Range,
	functions *hcl.EvalContext) hcl.Diagnostics {
	var diags hcl.Diagnostics
	ctx := functions.NewChild()
	ctx.Variables = map[string]cty.Value{"var": cty.ObjectVal(map[string]cty.Value{v.Name: value})}
	for _, rule := range v.Validations {
		if foreign := foreignReference(v, rule); foreign != nil {
			diags = append(diags, foreign)
			continue
		}
		ok, message, ruleDiags := decode.Condition(rule.Condition.Expr, rule.Message.Expr, ctx)
		diags = append(diags, ruleDiags...)
		if !ok && !ruleDiags.HasErrors() {
			diags = append(diags, diagnostic.Problem(at, "Invalid value for a variable",
				fmt.Sprintf("%s\n\nThe validation is at %s.", message, diagnostic.At(rule.Condition.SrcRange))))
		}
	}
	return diags
}

// foreignReference finds the first name in a validation other than the variable itself.
func foreignReference(v *parse.Variable, rule parse.Validation) *hcl.Diagnostic {
	for _, t := range append(rule.Condition.Expr.Variables(), rule.Message.Expr.Variables()...) {
		if name, ok := parse.AttrStep(t, 1); ok && t.RootName() == "var" && name == v.Name {
			continue
		}
		return diagnostic.Problem(t.SourceRange(), "Reference to another value",
			fmt.Sprintf(
				"A validation of the variable %q may only refer to var.%s. For conditions on several values, use "+
					"lifecycle { precondition { … } } of a block.", v.Name, v.Name))
	}
	return nil
}
