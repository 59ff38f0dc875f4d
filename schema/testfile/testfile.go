// Package testfile reads test files, NAME.test.hcl: the runs of a recipe that are made, what takes the place of plugins
// and
// outputs in them, and what must hold after each.
package testfile

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/zclconf/go-cty/cty"

	"github.com/recipe-rl/recipe/schema/addr"
	"github.com/recipe-rl/recipe/schema/budget"
	"github.com/recipe-rl/recipe/schema/decode"
	"github.com/recipe-rl/recipe/schema/diagnostic"
	"github.com/recipe-rl/recipe/schema/function"
	"github.com/recipe-rl/recipe/schema/input"
	"github.com/recipe-rl/recipe/schema/parse"
	"github.com/recipe-rl/recipe/sdk/kind"
)

// File is a file NAME.test.hcl: runs of one recipe, and what must hold of them.
type File struct {
	Path   string
	Recipe string // path of the recipe file or its folder
	Runs   []*Run
	File   *hcl.File // for diagnostics
}

// Run is one plan or apply of a test.
type Run struct {
	Name        string
	Command     string         // "plan" or "apply"
	Continues   string         // the earlier run whose run directory it uses; empty: a new one
	ExpectError *regexp.Regexp // the run must end with an error that matches; nil: without one
	Timeout     time.Duration  // of an apply
	Vars        map[string]input.Value
	Replace     []Replacement
	Mocks       []Mock
	Assertions  []Assertion
	Range       hcl.Range
}

// Replacement runs every block of a plugin by another plugin of the same kind. A block keeps its address, the
// meta-arguments that are not about its machine, and the arguments that the other plugin has too.
type Replacement struct {
	Kind         kind.Kind
	Plugin, With string
	Body         *hclsyntax.Body // arguments that take precedence over those of the recipe
	File         *hcl.File
	Range        hcl.Range
}

// Mock gives a block outputs without running it.
type Mock struct {
	Block   addr.Block // without a key: all instances
	Outputs map[string]cty.Value
	Range   hcl.Range
}

// Assertion is what must hold after a run.
type Assertion struct {
	Condition, Message hcl.Expression
	Range              hcl.Range
}

// DefaultTimeout is how long an apply of a test may take.
const DefaultTimeout = 5 * time.Minute

// parser collects what one test file declares.
type parser struct {
	functions *hcl.EvalContext
	file      *hcl.File
	diags     hcl.Diagnostics
}

// Load reads a test file. Its expressions may call functions; only assertions may refer to the recipe.
func Load(path string, environment []string) (*File, hcl.Diagnostics) {
	src, err := parse.ReadFile(path)
	if err != nil {
		return &File{Path: path}, hcl.Diagnostics{{Severity: hcl.DiagError, Summary: "Test file not found",
			Detail: diagnostic.UpperFirst(err.Error()) + "."}}
	}
	return LoadSource(path, src, environment)
}

// LoadSource is LoadTest for a text that need not be on disk.
func LoadSource(path string, src []byte, environment []string) (*File, hcl.Diagnostics) {
	t := &File{Path: path, File: &hcl.File{Bytes: src}}
	file, diags := parse.File(path, src)
	t.File = file
	body, ok := file.Body.(*hclsyntax.Body)
	if diags.HasErrors() || !ok {
		return t, diags
	}
	limits := budget.New()
	if diags := limits.Guard(body); diags.HasErrors() {
		return t, diags
	}
	functions := function.All(function.Options{Files: &function.Files{Dir: filepath.Dir(path)},
		Template: parse.Template(limits),
		Result:   limits.Result,
		Environ:  function.Environ(environment), Sensitive: decode.Sensitive, Ephemeral: decode.Ephemeral})
	p := &parser{functions: &hcl.EvalContext{Functions: functions}, file: file}
	p.read(t, body)
	return t, diagnostic.Tidy(limits.With(p.diags))
}

func (p *parser) report(diags ...*hcl.Diagnostic) { p.diags = append(p.diags, diags...) }

func (p *parser) read(t *File, body *hclsyntax.Body) {
	t.Recipe = recipeOf(t.Path)
	for _, attr := range parse.SortedAttributes(body) {
		if attr.Name != "recipe" {
			p.report(diagnostic.UnknownAttribute(attr, "a test file", []string{"recipe"}))
			continue
		}
		if path := parse.LiteralString(attr, &p.diags); path != "" && !filepath.IsAbs(path) {
			t.Recipe = filepath.Join(filepath.Dir(t.Path), path)
		} else if path != "" {
			t.Recipe = path
		}
	}
	common := &Run{Vars: map[string]input.Value{}}
	for _, block := range body.Blocks {
		switch {
		case p.shared(common, block):
		case block.Type != "run":
			p.report(diagnostic.Problem(block.TypeRange, "Unknown block", fmt.Sprintf(
				"A test file contains run, variables, replace and mock, got %s.%s", block.Type,
				diagnostic.DidYouMean(block.Type, []string{"run", "variables", "replace", "mock"}))))
		case len(block.Labels) != 1:
			p.report(diagnostic.Problem(parse.Header(block), "Wrong number of labels", `A run has one name: write run "name" { … }.`))
		default:
			t.Runs = append(t.Runs, p.run(t, block))
		}
	}
	for _, r := range t.Runs {
		r.inherit(common)
	}
	if len(t.Runs) == 0 && len(p.diags) == 0 {
		p.report(diagnostic.Problem(body.SrcRange, "No run", `The file tests nothing: add run "name" { … }.`))
	}
}

// recipeOf is the recipe that a test file tests unless it names one: NAME.hcl of NAME.test.hcl, else its folder.
func recipeOf(path string) string {
	named := strings.TrimSuffix(path, ".test.hcl") + ".hcl"
	if _, err := os.Stat(named); err == nil {
		return named
	}
	return filepath.Dir(path)
}

// shared reads the blocks that a file and a run may contain.
func (p *parser) shared(r *Run, block *hclsyntax.Block) bool {
	switch block.Type {
	case "variables":
		p.report(parse.NoBlocks(block.Body, "variables")...)
		for _, attr := range parse.SortedAttributes(block.Body) {
			r.Vars[attr.Name] = input.Value{Value: p.value(attr), Source: "The test", Range: attr.Expr.Range()}
		}
	case "replace":
		r.Replace = append(r.Replace, p.replacement(block)...)
	case "mock":
		r.Mocks = append(r.Mocks, p.mock(block)...)
	default:
		return false
	}
	return true
}

// inherit adds what a file says for all of its runs.
func (r *Run) inherit(common *Run) {
	for name, v := range common.Vars {
		if _, ok := r.Vars[name]; !ok {
			r.Vars[name] = v
		}
	}
	r.Replace = append(r.Replace, common.Replace...) // the first that fits counts
	r.Mocks = append(r.Mocks, common.Mocks...)
}

func (p *parser) value(attr *hclsyntax.Attribute) cty.Value {
	v, diags := attr.Expr.Value(p.functions)
	p.report(diagnostic.Placed(diags, attr.Expr.Range())...)
	if diags.HasErrors() {
		return cty.DynamicVal
	}
	return v
}

func (p *parser) run(t *File, block *hclsyntax.Block) *Run {
	r := &Run{Name: block.Labels[0], Command: "apply", Timeout: DefaultTimeout, Vars: map[string]input.Value{},
		Range: parse.Header(block)}
	for _, earlier := range t.Runs {
		if earlier.Name == r.Name {
			p.report(diagnostic.Problem(r.Range, "Declared twice", fmt.Sprintf("The run %q is already declared at %s. Rename "+
				"one of them.",
				r.Name, diagnostic.At(earlier.Range))))
		}
	}
	for _, attr := range parse.SortedAttributes(block.Body) {
		p.runAttribute(t, r, attr)
	}
	for _, inner := range block.Body.Blocks {
		switch {
		case p.shared(r, inner):
		case inner.Type == "assert":
			rule, diags := parse.ConditionBlock(inner)
			if p.report(diags...); !diags.HasErrors() {
				r.Assertions = append(r.Assertions,
					Assertion{Condition: rule.Condition.Expr, Message: rule.Message.Expr, Range: parse.Header(inner)})
			}
		default:
			p.report(diagnostic.Problem(parse.Header(inner), "Unknown block", fmt.Sprintf(
				"A run contains assert, variables, replace and mock, got %s.%s", inner.Type,
				diagnostic.DidYouMean(inner.Type, []string{"assert", "variables", "replace", "mock"}))))
		}
	}
	return r
}

func (p *parser) runAttribute(t *File, r *Run, attr *hclsyntax.Attribute) {
	at := attr.Expr.Range()
	switch attr.Name {
	case "command":
		r.Command = hcl.ExprAsKeyword(attr.Expr)
		if r.Command != "plan" && r.Command != "apply" {
			p.report(diagnostic.Problem(at, "Unknown command", "Write command = plan or command = apply, without quotes."))
		}
	case "continues":
		r.Continues = parse.LiteralString(attr, &p.diags)
		for _, earlier := range t.Runs {
			if earlier.Name == r.Continues {
				return
			}
		}
		names := make([]string, 0, len(t.Runs))
		for _, earlier := range t.Runs {
			names = append(names, earlier.Name)
		}
		p.report(diagnostic.Problem(at, "Unknown run", fmt.Sprintf("There is no run %q before this one; there is %s.%s",
			r.Continues,
			diagnostic.List(names), diagnostic.DidYouMean(r.Continues, names))))
	case "expect_error":
		var err error
		if r.ExpectError, err = regexp.Compile(parse.LiteralString(attr, &p.diags)); err != nil {
			p.report(diagnostic.Problem(at, "Invalid regular expression", diagnostic.UpperFirst(err.Error())+"."))
		}
	case "timeout":
		var err error
		text := parse.LiteralString(attr, &p.diags)
		if r.Timeout, err = time.ParseDuration(text); text != "" && (err != nil || r.Timeout <= 0) {
			p.report(diagnostic.Problem(at, "Invalid duration", fmt.Sprintf(`Expected a duration such as "90s" or "5m", got %q.`, text)))
		}
	default:
		p.report(diagnostic.UnknownAttribute(attr, "a run block", []string{"command", "continues", "expect_error",
			"timeout"}))
	}
}

func (p *parser) replacement(block *hclsyntax.Block) []Replacement {
	with := block.Body.Attributes["with"]
	if len(block.Labels) != 2 || !kind.Kind(block.Labels[0]).Valid() || with == nil {
		p.report(diagnostic.Problem(parse.Header(block), "Incomplete block",
			`Write replace "KIND" "PLUGIN" { with = "OTHER PLUGIN" }, for example replace "trainer" "grpo" { with = "tiny" }.`))
		return nil
	}
	body := *block.Body
	body.Attributes = hclsyntax.Attributes{}
	for name, attr := range block.Body.Attributes {
		if name != "with" {
			body.Attributes[name] = attr
		}
	}
	return []Replacement{{Kind: kind.Kind(block.Labels[0]), Plugin: block.Labels[1],
		With: parse.LiteralString(with, &p.diags), Body: &body, File: p.file, Range: parse.Header(block)}}
}

func (p *parser) mock(block *hclsyntax.Block) []Mock {
	if len(block.Labels) != 3 || !kind.Kind(block.Labels[0]).Valid() {
		p.report(diagnostic.Problem(parse.Header(block), "Incomplete block",
			`Write mock "KIND" "PLUGIN" "NAME" { OUTPUT = VALUE }, for example mock "inference" "vllm" "policy" { … }.`))
		return nil
	}
	p.report(parse.NoBlocks(block.Body, "mock")...)
	m := Mock{Block: addr.Block{Kind: kind.Kind(block.Labels[0]), Plugin: block.Labels[1], Name: block.Labels[2]},
		Outputs: map[string]cty.Value{}, Range: parse.Header(block)}
	for _, attr := range parse.SortedAttributes(block.Body) {
		m.Outputs[attr.Name] = p.value(attr)
	}
	return []Mock{m}
}
