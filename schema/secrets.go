package schema

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
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

// addValue adds every text inside a value: strings, numbers, and the keys of maps, which are data, as the names of an
// object's attributes are not.
func (s *secrets) addValue(v cty.Value) {
	v, _ = v.Unmark()
	if !v.IsKnown() || v.IsNull() {
		return
	}
	switch v.Type() {
	case cty.String:
		s.add(v.AsString())
		return
	case cty.Number:
		s.add(v.AsBigFloat().Text('f', -1))
		return
	}
	if v.CanIterateElements() {
		for it := v.ElementIterator(); it.Next(); {
			key, elem := it.Element()
			if v.Type().IsMapType() {
				s.add(key.AsString())
			}
			s.addValue(elem)
		}
	}
}

// addMarked adds every text inside the sensitive parts of a value.
func (s *secrets) addMarked(v cty.Value) {
	if v == cty.NilVal || !v.ContainsMarked() {
		return
	}
	_ = cty.Walk(v, func(_ cty.Path, part cty.Value) (bool, error) {
		if part.IsMarked() {
			s.addValue(part)
		}
		return !part.IsMarked(), nil
	})
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
	given := make([][]string, len(diags))
	for i, d := range diags {
		given[i] = p.argumentsOf(d)
	}
	replacer := p.secrets.replacer()
	for i, d := range diags {
		d.Summary, d.Detail = replacer.Replace(d.Summary), replacer.Replace(d.Detail)
		if name, ok := called(d); ok && len(given[i]) > 0 && (tells(name, d.Detail) || quotes(d.Detail, given[i])) {
			d.Detail = fmt.Sprintf("Call to function %q failed. Its error is not shown: an argument is sensitive, and the "+
				"error may quote a part of it.", name)
		}
	}
	return diags
}

// called is the function whose call a diagnostic is about.
func called(d *hcl.Diagnostic) (name string, ok bool) {
	extra, ok := hcl.DiagnosticExtra[hclsyntax.FunctionCallDiagExtra](d)
	if !ok {
		return "", false
	}
	return extra.CalledFunctionName(), true
}

// argumentsOf are the texts in the sensitive arguments of the call that a diagnostic is about. They are added to the
// secrets: what a function was given may be computed from a secret.
func (p *evaluator) argumentsOf(d *hcl.Diagnostic) []string {
	if _, ok := called(d); !ok || d.Expression == nil || d.EvalContext == nil {
		return nil
	}
	arguments := []hcl.Expression{d.Expression} // of an error about one argument
	if call, ok := d.Expression.(*hclsyntax.FunctionCallExpr); ok {
		arguments = arguments[:0]
		for _, argument := range call.Args {
			arguments = append(arguments, argument)
		}
	}
	p.budget.Refill()
	of := secrets{}
	for _, argument := range arguments {
		v, _ := argument.Value(d.EvalContext)
		of.addMarked(v)
		p.secrets.addMarked(v)
	}
	return of.list()
}

// tells says whether a function reads its argument as a language: its errors name what they found in it, if only a
// character.
func tells(function, message string) bool {
	switch function {
	case "format", "formatlist", "formatdate", "replace", "timeadd", "parseint", "templatefile":
		return true
	case "regex", "regexall": // an invalid pattern is quoted
		return !strings.Contains(message, "did not match")
	}
	return strings.HasSuffix(function, "decode")
}

// quotes says whether a message has a part of a text that could be told from chance.
func quotes(message string, texts []string) bool {
	for _, text := range texts {
		for i := 0; i+shortest <= len(text); i++ {
			if strings.Contains(message, text[i:i+shortest]) {
				return true
			}
		}
	}
	return false
}

// quoted is a text as %q writes it, without the quotes: errors of functions quote what they were given.
func quoted(text string) string {
	q := strconv.Quote(text)
	return q[1 : len(q)-1]
}

// addVariables adds the values of variables that are sensitive, or that were given a sensitive value.
func (p *evaluator) addVariables() {
	for _, m := range p.loader.modules {
		for _, n := range m.variables {
			for _, done := range n.done {
				if done != nil {
					p.secrets.addMarked(done.value)
				}
			}
		}
	}
}

// replacer hides the texts, plain and as they are quoted.
func (s *secrets) replacer() *strings.Replacer {
	var pairs []string
	for _, text := range s.list() {
		pairs = append(pairs, text, blanked)
		if q := quoted(text); q != text {
			pairs = append(pairs, q, blanked)
		}
	}
	return strings.NewReplacer(pairs...)
}

const blanked = "(sensitive)"

// list returns the texts, the longest first: one may contain another.
func (s *secrets) list() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	texts := slices.Sorted(maps.Keys(s.texts))
	slices.SortStableFunc(texts, func(a, b string) int { return cmp.Compare(len(b), len(a)) })
	return texts
}

// Secrets returns the texts that the recipe keeps secret, as far as they are known before anything runs: values of
// sensitive variables, those that env has read, and what blocks are given of either. The longest comes first.
func (r *Recipe) Secrets() []string {
	if r.eval == nil {
		return nil
	}
	r.eval.addVariables()
	for _, inst := range r.eval.instances {
		r.eval.secrets.addMarked(inst.block.Value)
		for _, v := range inst.block.Meta.Environment {
			r.eval.secrets.addMarked(v)
		}
	}
	return r.eval.secrets.list()
}

// Redacted returns a function that hides the recipe's secrets in a text, such as what a plugin says of its block.
func (r *Recipe) Redacted() func(text string) string {
	if len(r.Secrets()) == 0 {
		return func(text string) string { return text }
	}
	return r.eval.secrets.replacer().Replace
}
