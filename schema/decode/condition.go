package decode

import (
	"github.com/hashicorp/hcl/v2"
	"github.com/zclconf/go-cty/cty"
	"github.com/zclconf/go-cty/cty/convert"

	"github.com/recipe-rl/recipe/schema/diagnostic"
)

// Condition evaluates a check. An unknown condition passes. Both parts are evaluated, so that errors in either are
// found.
func Condition(cond, message hcl.Expression, ctx *hcl.EvalContext) (ok bool, text string, diags hcl.Diagnostics) {
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
