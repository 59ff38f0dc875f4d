package schema

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"

	"github.com/recipe-rl/recipe/schema/addr"
	"github.com/recipe-rl/recipe/schema/diagnostic"
)

// Moved is a moved block, with the addresses that it has in the whole recipe: one for each instance of its module.
type Moved struct {
	addr.Move

	Range hcl.Range
}

// maxMoved bounds the moves of a recipe, over all instances of its modules.
const maxMoved = 10_000

type movedDecl struct {
	move   addr.Move
	header hcl.Range
}

func (s *source) declareMoved(block *hclsyntax.Block) hcl.Diagnostics {
	diags := noBlocks(block.Body, "moved")
	ends := map[string]addr.Target{}
	for _, attr := range sortedAttributes(block.Body) {
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
			diags = append(diags, diagnostic.Problem(header(block), "Missing attribute",
				"A moved block needs from and to: from = trainer.grpo.old and to = trainer.grpo.new, for example."))
			break
		}
	}
	if len(ends) < 2 {
		return diags
	}
	move, err := addr.NewMove(ends["from"], ends["to"])
	if err != nil {
		return append(diags, diagnostic.Problem(header(block), "Invalid move",
			fmt.Sprintf("%s cannot move to %s: %v.", ends["from"], ends["to"], err)))
	}
	s.moved = append(s.moved, &movedDecl{move: move, header: header(block)})
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

// resolveMoved collects the moves of all modules and reports those that cannot be followed.
func (p *evaluator) resolveMoved(r *Recipe) {
	for _, m := range p.loader.modules {
		for _, d := range m.source.moved {
			for _, inst := range m.instances {
				if len(r.Moved) == maxMoved {
					p.diags = append(p.diags, diagnostic.Problem(d.header, "Too many moved blocks",
						"A recipe has at most "+strconv.Itoa(maxMoved)+" moved blocks, over all instances of its modules."))
					return
				}
				r.Moved = append(r.Moved, Moved{Move: d.move.In(inst.path), Range: d.header})
			}
		}
	}
	if len(r.Moved) == 0 {
		return
	}
	first := map[addr.Target]hcl.Range{}
	next := map[addr.Target]addr.Target{}
	for _, m := range r.Moved {
		if at, twice := first[m.From]; twice {
			p.diags = append(p.diags, diagnostic.Problem(m.Range, "Moved twice",
				fmt.Sprintf("%s is already moved at %s. Remove one of the two.", m.From, diagnostic.At(at))))
			continue
		}
		first[m.From], next[m.From] = m.Range, m.To
	}
	for _, m := range r.Moved {
		p.checkMoved(m, r, next)
	}
}

func (p *evaluator) checkMoved(m Moved, r *Recipe, next map[addr.Target]addr.Target) {
	for to, seen := m.To, map[addr.Target]bool{}; !seen[to]; to = next[to] {
		if to == m.From {
			p.diags = append(p.diags, diagnostic.Problem(m.Range, "Moved in a circle",
				fmt.Sprintf("The moved blocks lead from %s back to it. Remove one of them.", m.From)))
			return
		}
		if seen[to] = true; next[to] == (addr.Target{}) {
			break
		}
	}
	if i := slices.IndexFunc(r.Blocks, func(b *Block) bool { _, ok := m.Apply(b.Addr); return ok }); i >= 0 {
		p.diags = append(p.diags, diagnostic.Problem(m.Range, "Moved and still declared",
			fmt.Sprintf("%s is declared at %s, so it has not moved to %s. Remove the moved block, or the declaration.",
				r.Blocks[i].Addr, diagnostic.At(r.Blocks[i].Range), m.To)))
	}
}

// Move returns where a recorded block is now; ok is false when it did not move.
func (r *Recipe) Move(a addr.Block) (to addr.Block, ok bool) {
	moves := make([]addr.Move, len(r.Moved))
	for i, m := range r.Moved {
		moves[i] = m.Move
	}
	return addr.Follow(moves, a)
}
