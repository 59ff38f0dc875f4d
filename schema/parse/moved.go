package parse

import (
	"fmt"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"

	"github.com/recipe-rl/recipe/schema/addr"
	"github.com/recipe-rl/recipe/schema/diagnostic"
)

// Move is a moved block.
type Move struct {
	Move   addr.Move
	Header hcl.Range
}

func (s *Source) declareMoved(block *hclsyntax.Block) hcl.Diagnostics {
	diags := NoBlocks(block.Body, "moved")
	ends := map[string]addr.Target{}
	for _, attr := range SortedAttributes(block.Body) {
		switch attr.Name {
		case "from", "to":
			end, d := targetOf(attr)
			if d != nil {
				diags = append(diags, d)
				continue
			}
			ends[attr.Name] = end
		default:
			diags = append(diags, diagnostic.UnknownAttribute(attr, "a moved block", []string{"from", "to"}))
		}
	}
	for _, name := range []string{"from", "to"} {
		if block.Body.Attributes[name] == nil {
			diags = append(diags, diagnostic.Problem(Header(block), "Missing attribute",
				"A moved block needs from and to: from = trainer.grpo.old and to = trainer.grpo.new, for example."))
			break
		}
	}
	if len(ends) < 2 {
		return diags
	}
	move, err := addr.NewMove(ends["from"], ends["to"])
	if err != nil {
		return append(diags, diagnostic.Problem(Header(block), "Invalid move",
			fmt.Sprintf("%s cannot move to %s: %v.", ends["from"], ends["to"], err)))
	}
	s.Moved = append(s.Moved, &Move{Move: move, Header: Header(block)})
	return diags
}

// targetOf reads an address that is written as a reference, without quotes.
func targetOf(attr *hclsyntax.Attribute) (addr.Target, *hcl.Diagnostic) {
	const form = "Expected the address of a block or of a module, without quotes: trainer.grpo.policy, " +
		`trainer.grpo.policy[0], module.eval or module.eval["math"].trainer.grpo.policy.`
	steps, diags := hcl.AbsTraversalForExpr(attr.Expr)
	if diags.HasErrors() {
		return addr.Target{}, diagnostic.Problem(attr.Expr.Range(), "Invalid address", form)
	}
	var b strings.Builder
	b.WriteString(steps.RootName())
	for _, step := range steps[1:] {
		switch step := step.(type) {
		case hcl.TraverseAttr:
			b.WriteString("." + step.Name)
		case hcl.TraverseIndex:
			key, ok := addr.KeyOf(step.Key)
			if !ok {
				return addr.Target{}, diagnostic.Problem(step.SrcRange, "Invalid address", form)
			}
			b.WriteString(key.String())
		default:
			return addr.Target{}, diagnostic.Problem(step.SourceRange(), "Invalid address", form)
		}
	}
	t, err := addr.ParseTarget(b.String())
	if err != nil {
		return addr.Target{}, diagnostic.Problem(attr.Expr.Range(), "Invalid address",
			diagnostic.UpperFirst(err.Error())+". "+form)
	}
	return t, nil
}
