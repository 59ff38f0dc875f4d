package schema

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/hashicorp/hcl/v2"
	"github.com/zclconf/go-cty/cty"

	"github.com/recipe-rl/recipe/schema/addr"
)

// secrets remembers the texts that must not appear in a message. Errors of functions quote their arguments and ignore
// marks: file(var.key) would quote the key.
type secrets struct {
	mu    sync.Mutex
	texts map[string]bool
}

// shortest is the minimum length of a redacted text: shorter ones would garble every message.
const shortest = 4

func (s *secrets) add(text string) {
	if len(text) < shortest {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.texts == nil {
		s.texts = map[string]bool{}
	}
	s.texts[text] = true
}

// addValue adds every text inside a value.
func (s *secrets) addValue(v cty.Value) {
	v, _ = v.Unmark()
	if !v.IsKnown() || v.IsNull() {
		return
	}
	if v.Type() == cty.String {
		s.add(v.AsString())
		return
	}
	if v.CanIterateElements() {
		for it := v.ElementIterator(); it.Next(); {
			_, elem := it.Element()
			s.addValue(elem)
		}
	}
}

// redact removes secrets from messages: values that env has read, sensitive variables, and sensitive outputs.
func (p *evaluator) redact(diags hcl.Diagnostics, outputs map[addr.Block]cty.Value) hcl.Diagnostics {
	if len(diags) == 0 {
		return diags
	}
	p.addVariables()
	for a, values := range outputs {
		inst := p.instances[a]
		if inst == nil || inst.block.Schema == nil || inst.block.Schema.Outputs == nil ||
			!values.Type().IsObjectType() || !values.IsKnown() || values.IsNull() {
			continue
		}
		for _, attr := range inst.block.Schema.Outputs.Attributes {
			if attr.Sensitive && values.Type().HasAttribute(attr.Name) {
				p.secrets.addValue(values.GetAttr(attr.Name))
			}
		}
	}
	texts := p.secrets.list()
	for _, d := range diags {
		for _, text := range texts {
			for _, form := range []string{text, quoted(text)} {
				d.Summary = strings.ReplaceAll(d.Summary, form, "(sensitive)")
				d.Detail = strings.ReplaceAll(d.Detail, form, "(sensitive)")
			}
		}
	}
	return diags
}

// quoted is a text as %q writes it, without the quotes: errors of functions quote what they were given.
func quoted(text string) string {
	q := strconv.Quote(text)
	return q[1 : len(q)-1]
}

// addVariables adds the values of sensitive variables.
func (p *evaluator) addVariables() {
	for _, n := range p.root.module.variables {
		if n.variable.sensitive && len(n.done) > 0 && n.done[0] != nil {
			p.secrets.addValue(n.done[0].value)
		}
	}
}

// list returns the texts, the longest first: one may contain another.
func (s *secrets) list() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	texts := sortedKeys(s.texts)
	slices.SortStableFunc(texts, func(a, b string) int { return cmp.Compare(len(b), len(a)) })
	return texts
}

// Secrets returns the texts that the recipe keeps secret, as far as they are known before anything runs: values of
// sensitive variables and those that env has read. The longest comes first.
func (r *Recipe) Secrets() []string {
	if r.eval == nil {
		return nil
	}
	r.eval.addVariables()
	return r.eval.secrets.list()
}
