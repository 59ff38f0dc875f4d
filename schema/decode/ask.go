package decode

import (
	"fmt"
	"slices"
	"strings"
	"unicode"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/zclconf/go-cty/cty"

	"github.com/recipe-rl/recipe/schema/diagnostic"
	"github.com/recipe-rl/recipe/sdk/spec"
)

// Ask has the plugin of a block check its value. Parts that failed the checks of the schema are unknown.
func (d *Decoder) Ask(body *hclsyntax.Body, config cty.Value) {
	if d.Target.Validate == nil || hasBlock(body, "external") {
		return // an external block is not configured by its plugin
	}
	plain, _ := config.UnmarkDeep()
	problems, err := d.Target.Validate(plain)
	if err != nil {
		problems = append(problems, spec.Problem{Summary: "Value not usable", Detail: diagnostic.UpperFirst(err.Error()) +
			"."})
	}
	if len(problems) == 0 {
		return
	}
	d.hide(d.Target.Config, config)
	for _, p := range problems {
		detail := p.Detail
		if detail == "" {
			detail = fmt.Sprintf("The %s plugin %q rejects this value.", d.Target.Kind, d.Target.Plugin)
		}
		diag := diagnostic.Problem(Locate(body, d.Header, p), sentence(p), fmt.Sprintf("In %s: %s", d.Label, detail))
		if p.Warning {
			diag.Severity = hcl.DiagWarning
		}
		d.report(diag)
	}
}

// hide redacts the sensitive values of a block in messages of its plugin, which does not see marks.
func (d *Decoder) hide(s *spec.Schema, config cty.Value) {
	_ = cty.Walk(config, func(path cty.Path, v cty.Value) (bool, error) { // the function returns no error
		name := ""
		if len(path) > 0 {
			if attr, ok := path[0].(cty.GetAttrStep); ok {
				name = attr.Name
			}
		}
		if a := s.Attribute(name); v.IsMarked() || a != nil && a.Sensitive {
			d.Shared.hide(v)
		}
		return true, nil
	})
}

func hasBlock(body *hclsyntax.Body, name string) bool {
	return slices.ContainsFunc(body.Blocks, func(b *hclsyntax.Block) bool { return b.Type == name })
}

// sentence is a problem's summary with a capital letter, unless it begins with the name of an attribute.
func sentence(p spec.Problem) string {
	word, _, _ := strings.Cut(p.Summary, " ")
	if strings.ContainsFunc(word, func(r rune) bool { return !unicode.IsLetter(r) }) {
		return p.Summary
	}
	for _, step := range p.Path {
		if name, ok := step.(cty.GetAttrStep); ok && name.Name == word {
			return p.Summary
		}
	}
	return diagnostic.UpperFirst(p.Summary)
}
