package input

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

// Given is a value for a variable of the root and where it comes from.
type Given struct {
	Value  cty.Value
	Source string
	Range  hcl.Range
	Broken bool // it could not be read; reported
	Stored bool // in a saved plan
}

// Default is the source of a variable's value that nothing gives.
const Default = "default"

// Reader are where the variables of a recipe get their values.
type Reader struct {
	Environ  []string           // RECIPE_VAR_NAME=…, among others
	Planned  map[string]Planned // of a saved plan
	VarFiles []string           // later ones win
	Vars     map[string]Value   // from --var

	ReadFile  func(path string) ([]byte, error)
	Files     *parse.Files
	Budget    *budget.Budget
	Functions *hcl.EvalContext // that expressions in files call
	Diags     hcl.Diagnostics
}

// Read collects values from the environment, a saved plan, variable files, then --var: later ones win.
func (p *Reader) Read(variables []*parse.Variable) map[string]Given {
	declared := make(map[string]*parse.Variable, len(variables))
	for _, v := range variables {
		declared[v.Name] = v
	}
	out := map[string]Given{}
	for _, entry := range p.Environ {
		name, raw, ok := strings.Cut(entry, "=")
		name, isVar := strings.CutPrefix(name, "RECIPE_VAR_")
		if v := declared[name]; ok && isVar && v != nil && !p.Planned[name].stored() {
			out[name] = p.rawValue(v, raw, "RECIPE_VAR_"+name)
		}
	}
	p.plannedValues(declared, out)
	for _, path := range p.VarFiles {
		p.variableFile(path, declared, out)
	}
	for _, name := range slices.Sorted(maps.Keys(p.Vars)) {
		given := p.Vars[name]
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
			p.Diags = append(p.Diags, diag)
		case given.Value != cty.NilVal:
			out[name] = Given{Value: given.Value, Source: source, Range: given.Range}
		default:
			out[name] = p.rawValue(v, given.Raw, source)
		}
	}
	p.checkWithheld(declared, out)
	return out
}

// rawValue reads a value from the command line or the environment: literal text for a string variable, an expression
// without names for every other type. For a variable without a type, only what is in brackets or quotes is one.
func (p *Reader) rawValue(v *parse.Variable, raw, source string) Given {
	text := Given{Value: cty.StringVal(raw), Source: source, Range: v.Header}
	if v.Type == cty.DynamicPseudoType && v.Fallback != nil {
		text.Value = Untyped(raw, v.Fallback.Expr)
	} else if v.Type == cty.DynamicPseudoType {
		text.Value = Untyped(raw, nil)
	}
	if v.Type == cty.String || v.Type == cty.DynamicPseudoType && !Bracketed(raw) {
		return text
	}
	filename := fmt.Sprintf("<%s %s>", source, v.Name)
	if strings.HasPrefix(source, "RECIPE_VAR_") {
		filename = "<" + source + ">"
	}
	if d := parse.TooLarge(filename, []byte(raw)); d != nil {
		p.Diags = append(p.Diags, d)
		return Given{Source: source, Broken: true}
	}
	expr, diags := hclsyntax.ParseExpression([]byte(raw), filename, hcl.InitialPos)
	if !diags.HasErrors() {
		diags = p.Budget.Guard(expr)
	}
	if !diags.HasErrors() {
		var value cty.Value
		if value, diags = expr.Value(nil); !diags.HasErrors() {
			p.keep(v, filename, raw)
			return Given{Value: value, Source: source, Range: expr.Range()}
		}
	}
	if v.Type == cty.DynamicPseudoType {
		return text
	}
	p.Diags = append(p.Diags, &hcl.Diagnostic{Severity: hcl.DiagError, Summary: "Invalid value",
		Subject: &v.Header,
		Detail: fmt.Sprintf("%s sets the variable %q to a value that cannot be parsed as %s (%s). %s", source, v.Name,
			typeexpr.TypeString(v.Type), diagnostic.LowerFirst(diags[0].Summary), v.Example())})
	return Given{Source: source, Broken: true}
}

// keep stores a given text for snippets, unless it is secret.
func (p *Reader) keep(v *parse.Variable, filename, raw string) {
	if !v.Sensitive {
		p.Files.Shown[filename] = &hcl.File{Bytes: []byte(raw)}
	}
}

// variableFile reads `name = value` lines, or JSON when the name ends in .json. Names that the recipe does not declare
// are a warning: a file may serve several recipes.
func (p *Reader) variableFile(path string, declared map[string]*parse.Variable, out map[string]Given) {
	src, err := p.ReadFile(path)
	if err != nil {
		summary := "Variable file not readable"
		if errors.Is(err, fs.ErrNotExist) {
			summary = "Variable file not found"
		}
		p.Diags = append(p.Diags, &hcl.Diagnostic{Severity: hcl.DiagError, Summary: summary,
			Detail: fmt.Sprintf("The variable file %s cannot be read: %s.", path, err)})
		return
	}
	if d := parse.Unreadable(path, src); d != nil {
		p.Diags = append(p.Diags, d)
		return
	}
	var file *hcl.File
	var diags hcl.Diagnostics
	if strings.HasSuffix(path, ".json") {
		file, diags = hcljson.Parse(src, path)
	} else {
		file, diags = hclsyntax.ParseConfig(src, path, hcl.InitialPos)
	}
	if p.Diags = append(p.Diags, diagnostic.Few(diags, parse.MaxMistakes)...); file == nil || diags.HasErrors() {
		return
	}
	p.Files.Shown[path] = file
	if body, ok := file.Body.(*hclsyntax.Body); ok {
		p.Diags = append(p.Diags, p.Budget.Guard(body)...)
	}
	attrs, diags := file.Body.JustAttributes()
	p.Diags = append(p.Diags, diags...)
	for _, name := range slices.Sorted(maps.Keys(attrs)) {
		attr := attrs[name]
		if declared[name] == nil {
			p.Diags = append(p.Diags, diagnostic.Warning(attr.NameRange, "Undeclared variable",
				fmt.Sprintf("The recipe does not declare the variable %q.%s", name,
					diagnostic.DidYouMean(name, slices.Sorted(maps.Keys(declared))))))
			continue
		}
		if declared[name].Sensitive {
			p.Files.Cover(attr.Expr.Range())
		}
		value, diags := attr.Expr.Value(p.Functions)
		if d, _ := budget.Implausible(value, attr.Expr.Range()); d != nil {
			diags = append(diags, d)
		}
		p.Diags = append(p.Diags, diagnostic.Placed(diags, attr.Expr.Range())...)
		out[name] = Given{Value: value, Source: filepath.ToSlash(path), Range: attr.Expr.Range(),
			Broken: diags.HasErrors()}
	}
}
