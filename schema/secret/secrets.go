// Package secret keeps the texts that must not appear in a message, and takes them out of diagnostics.
package secret

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
)

// Texts remembers the texts that must not appear in a message. Errors of functions quote their arguments and ignore
// marks: file(var.key) would quote the key.
type Texts struct {
	mu    sync.Mutex
	texts map[string]bool
}

// shortest is the minimum length of a redacted text: shorter ones would garble every message.
const shortest = 4

// Add adds a text, unless it is so short that hiding it would garble every message.
func (s *Texts) Add(text string) {
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

// AddValue adds every text inside a value: strings, numbers, and the keys of maps, which are data, as the names of an
// object's attributes are not.
func (s *Texts) AddValue(v cty.Value) {
	v, _ = v.Unmark()
	if !v.IsKnown() || v.IsNull() {
		return
	}
	switch v.Type() {
	case cty.String:
		s.Add(v.AsString())
		return
	case cty.Number:
		s.Add(v.AsBigFloat().Text('f', -1))
		return
	}
	if v.CanIterateElements() {
		for it := v.ElementIterator(); it.Next(); {
			key, elem := it.Element()
			if v.Type().IsMapType() {
				s.Add(key.AsString())
			}
			s.AddValue(elem)
		}
	}
}

// AddMarked adds every text inside the sensitive parts of a value.
func (s *Texts) AddMarked(v cty.Value) {
	if v == cty.NilVal || !v.ContainsMarked() {
		return
	}
	_ = cty.Walk(v, func(_ cty.Path, part cty.Value) (bool, error) {
		if part.IsMarked() {
			s.AddValue(part)
		}
		return !part.IsMarked(), nil
	})
}

// Redact removes the texts from messages. Arguments of calls are evaluated again for it, each time after before.
func (s *Texts) Redact(diags hcl.Diagnostics, before func()) hcl.Diagnostics {
	given := make([][]string, len(diags))
	for i, d := range diags {
		given[i] = s.argumentsOf(d, before)
	}
	replacer := s.Replacer()
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
func (s *Texts) argumentsOf(d *hcl.Diagnostic, before func()) []string {
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
	before()
	of := Texts{}
	for _, argument := range arguments {
		v, _ := argument.Value(d.EvalContext)
		of.AddMarked(v)
		s.AddMarked(v)
	}
	return of.List()
}

// tells reports whether a function reads its argument as a language: its errors name what they found in it, if only a
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

// quotes reports whether a message has a part of a text that could be told from chance.
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

// Replacer hides the texts, plain and as they are quoted.
func (s *Texts) Replacer() *strings.Replacer {
	var pairs []string
	for _, text := range s.List() {
		pairs = append(pairs, text, blanked)
		if q := quoted(text); q != text {
			pairs = append(pairs, q, blanked)
		}
	}
	return strings.NewReplacer(pairs...)
}

const blanked = "(sensitive)"

// List returns the texts, the longest first: one may contain another.
func (s *Texts) List() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	texts := slices.Sorted(maps.Keys(s.texts))
	slices.SortStableFunc(texts, func(a, b string) int { return cmp.Compare(len(b), len(a)) })
	return texts
}
