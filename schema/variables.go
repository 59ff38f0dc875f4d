package schema

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/ext/typeexpr"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	hcljson "github.com/hashicorp/hcl/v2/json"
	"github.com/zclconf/go-cty/cty"

	"github.com/recipe-rl/recipe/schema/budget"
	"github.com/recipe-rl/recipe/schema/diagnostic"
	"github.com/recipe-rl/recipe/schema/parse"
)

// givenValue is a value for a variable of the root and where it comes from.
type givenValue struct {
	value  cty.Value
	source string
	rng    hcl.Range
	broken bool // it could not be read; reported
	stored bool // in a saved plan
}

// defaultSource is the source of a variable's value that nothing gives.
const defaultSource = "default"

// readVariables collects values from the environment, a saved plan, variable files, then --var: later ones win.
func (p *evaluator) readVariables(s *parse.Source) map[string]givenValue {
	declared := make(map[string]*parse.Variable, len(s.Variables))
	for _, v := range s.Variables {
		declared[v.Name] = v
	}
	out := map[string]givenValue{}
	for _, entry := range p.opts.Environ {
		name, raw, ok := strings.Cut(entry, "=")
		name, isVar := strings.CutPrefix(name, "RECIPE_VAR_")
		if v := declared[name]; ok && isVar && v != nil && !p.opts.Planned[name].stored() {
			out[name] = p.rawValue(v, raw, "RECIPE_VAR_"+name)
		}
	}
	p.plannedValues(declared, out)
	for _, path := range p.opts.VarFiles {
		p.variableFile(path, declared, out)
	}
	for _, name := range slices.Sorted(maps.Keys(p.opts.Vars)) {
		given := p.opts.Vars[name]
		source := given.Source
		if source == "" {
			source = "--var"
		}
		v, ok := declared[name]
		switch {
		case !ok:
			diag := &hcl.Diagnostic{Severity: hcl.DiagError, Summary: "Undeclared variable",
				Detail: fmt.Sprintf("%s sets the variable %q, but the recipe does not declare it; it declares %s.%s",
					source, name, diagnostic.List(slices.Sorted(maps.Keys(declared))), diagnostic.DidYouMean(name,
						slices.Sorted(maps.Keys(declared))))}
			if given.Value != cty.NilVal {
				diag.Subject = &given.Range
			}
			p.diags = append(p.diags, diag)
		case given.Value != cty.NilVal:
			out[name] = givenValue{value: given.Value, source: source, rng: given.Range}
		default:
			out[name] = p.rawValue(v, given.Raw, source)
		}
	}
	p.checkWithheld(declared, out)
	return out
}

// rawValue reads a value from the command line or the environment: literal text for a string variable, an expression
// without names for every other type. For a variable without a type, only what is in brackets or quotes is one.
func (p *evaluator) rawValue(v *parse.Variable, raw, source string) givenValue {
	text := givenValue{value: cty.StringVal(raw), source: source, rng: v.Header}
	if v.Type == cty.DynamicPseudoType && v.Fallback != nil {
		text.value = untyped(raw, v.Fallback.Expr)
	} else if v.Type == cty.DynamicPseudoType {
		text.value = untyped(raw, nil)
	}
	if v.Type == cty.String || v.Type == cty.DynamicPseudoType && !bracketed(raw) {
		return text
	}
	filename := fmt.Sprintf("<%s %s>", source, v.Name)
	if strings.HasPrefix(source, "RECIPE_VAR_") {
		filename = "<" + source + ">"
	}
	if d := parse.TooLarge(filename, []byte(raw)); d != nil {
		p.diags = append(p.diags, d)
		return givenValue{source: source, broken: true}
	}
	expr, diags := hclsyntax.ParseExpression([]byte(raw), filename, hcl.InitialPos)
	if !diags.HasErrors() {
		diags = p.budget.Guard(expr)
	}
	if !diags.HasErrors() {
		var value cty.Value
		if value, diags = expr.Value(nil); !diags.HasErrors() {
			p.keep(v, filename, raw)
			return givenValue{value: value, source: source, rng: expr.Range()}
		}
	}
	if v.Type == cty.DynamicPseudoType {
		return text
	}
	p.diags = append(p.diags, &hcl.Diagnostic{Severity: hcl.DiagError, Summary: "Invalid value",
		Subject: &v.Header,
		Detail: fmt.Sprintf("%s sets the variable %q to a value that cannot be parsed as %s (%s). %s", source, v.Name,
			typeexpr.TypeString(v.Type), diagnostic.LowerFirst(diags[0].Summary), v.Example())})
	return givenValue{source: source, broken: true}
}

// keep stores a given text for snippets, unless it is secret.
func (p *evaluator) keep(v *parse.Variable, filename, raw string) {
	if !v.Sensitive {
		p.loader.files.Shown[filename] = &hcl.File{Bytes: []byte(raw)}
	}
}

// variableFile reads `name = value` lines, or JSON when the name ends in .json. Names that the recipe does not declare
// are a warning: a file may serve several recipes.
func (p *evaluator) variableFile(path string, declared map[string]*parse.Variable, out map[string]givenValue) {
	src, err := p.opts.readFile(path)
	if err != nil {
		summary := "Variable file not readable"
		if errors.Is(err, fs.ErrNotExist) {
			summary = "Variable file not found"
		}
		p.diags = append(p.diags, &hcl.Diagnostic{Severity: hcl.DiagError, Summary: summary,
			Detail: fmt.Sprintf("The variable file %s cannot be read: %s.", path, err)})
		return
	}
	if d := parse.Unreadable(path, src); d != nil {
		p.diags = append(p.diags, d)
		return
	}
	var file *hcl.File
	var diags hcl.Diagnostics
	if strings.HasSuffix(path, ".json") {
		file, diags = hcljson.Parse(src, path)
	} else {
		file, diags = hclsyntax.ParseConfig(src, path, hcl.InitialPos)
	}
	if p.diags = append(p.diags, diagnostic.Few(diags, parse.MaxMistakes)...); file == nil || diags.HasErrors() {
		return
	}
	p.loader.files.Shown[path] = file
	if body, ok := file.Body.(*hclsyntax.Body); ok {
		p.diags = append(p.diags, p.budget.Guard(body)...)
	}
	attrs, diags := file.Body.JustAttributes()
	p.diags = append(p.diags, diags...)
	for _, name := range slices.Sorted(maps.Keys(attrs)) {
		attr := attrs[name]
		if declared[name] == nil {
			p.diags = append(p.diags, diagnostic.Warning(attr.NameRange, "Undeclared variable",
				fmt.Sprintf("The recipe does not declare the variable %q.%s", name,
					diagnostic.DidYouMean(name, slices.Sorted(maps.Keys(declared))))))
			continue
		}
		if declared[name].Sensitive {
			p.loader.files.Cover(attr.Expr.Range())
		}
		value, diags := attr.Expr.Value(p.base)
		if d, _ := budget.Implausible(value, attr.Expr.Range()); d != nil {
			diags = append(diags, d)
		}
		p.diags = append(p.diags, diagnostic.Placed(diags, attr.Expr.Range())...)
		out[name] = givenValue{value: value, source: filepath.ToSlash(path), rng: attr.Expr.Range(),
			broken: diags.HasErrors()}
	}
}
