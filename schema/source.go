package schema

import (
	"fmt"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"

	"github.com/recipe-rl/recipe/schema/diagnostic"
	"github.com/recipe-rl/recipe/sdk/kind"
)

// source is what one recipe file declares, before anything is evaluated. Modules that share a folder share it.
type source struct {
	path      string // as given by the user or, in a module, joined to the caller's folder
	dir       string
	bytes     []byte
	recipe    *recipeDecl
	variables []*variableDecl
	locals    []*localDecl
	outputs   []*outputDecl
	calls     []*callDecl
	blocks    []*blockDecl
	observers []*observerDecl
	moved     []*movedDecl
}

// blockDecl is a block of one of the kinds as written.
type blockDecl struct {
	kind         kind.Kind
	plugin, name string
	body         *hclsyntax.Body
	header       hcl.Range
	count        *hclsyntax.Attribute
	forEach      *hclsyntax.Attribute
	dependsOn    *hclsyntax.Attribute
	implicit     bool // the file does not declare it
}

func (d *blockDecl) repeated() bool { return d.count != nil || d.forEach != nil }

type localDecl struct {
	name string
	attr *hclsyntax.Attribute
}

type outputDecl struct {
	name        string
	description string
	sensitive   bool
	value       *hclsyntax.Attribute
	header      hcl.Range
}

// callDecl is a module block: a folder or a package, its arguments and how often.
type callDecl struct {
	name      string
	source    string
	sourceAt  hcl.Range
	required  Requirement // of a module from a package; its name is set when the tree of modules is built
	args      map[string]*hclsyntax.Attribute
	header    hcl.Range
	count     *hclsyntax.Attribute
	forEach   *hclsyntax.Attribute
	dependsOn *hclsyntax.Attribute
}

type recipeDecl struct {
	name            string
	requiredVersion string
	versionRange    hcl.Range
	plugins         []Requirement
	refused         []string // plugins whose entry in required_plugins was reported, and is none
	header          hcl.Range
}

// labels are how many labels each block of a file takes, with an example for the message.
var labels = map[string]struct {
	count   int
	example string
}{
	"recipe":   {0, `recipe { … }`},
	"locals":   {0, `locals { … }`},
	"variable": {1, `variable "model" { … }`},
	"output":   {1, `output "checkpoint" { … }`},
	"module":   {1, `module "eval" { … }`},
	"moved":    {0, `moved { … }`},
	"alert":    {1, `alert "reward_fell" { … }`},
	"tracking": {2, `tracking "tensorboard" "curves" { … }`},
}

// declare sorts the blocks of a parsed file into a source.
func declare(path, dir string, src []byte, body *hclsyntax.Body) (*source, hcl.Diagnostics) {
	s := &source{path: path, dir: dir, bytes: src}
	var diags hcl.Diagnostics
	for _, attr := range sortedAttributes(body) {
		diags = append(diags, diagnostic.Problem(attr.NameRange, "Attribute outside a block",
			fmt.Sprintf(
				"%q is outside any block. Put values that several blocks share into locals { %s = … }, and "+
					"settings of the recipe into recipe { … }.", attr.Name, attr.Name)))
	}
	for _, block := range body.Blocks {
		diags = append(diags, s.declareBlock(block)...)
	}
	return s, append(diags, s.duplicates()...)
}

func (s *source) declareBlock(block *hclsyntax.Block) hcl.Diagnostics {
	want, known := labels[block.Type]
	k := kind.Kind(block.Type)
	switch {
	case k.Valid():
		want.count, want.example = 2, fmt.Sprintf("%s %q %q { … }", block.Type, "plugin", "name")
	case !known:
		return hcl.Diagnostics{diagnostic.Problem(block.TypeRange, "Unknown block",
			fmt.Sprintf("There is no block %q. Expected one of %s.%s", block.Type, strings.Join(blockTypes(), ", "),
				diagnostic.DidYouMean(block.Type, blockTypes())))}
	}
	if len(block.Labels) != want.count {
		return hcl.Diagnostics{diagnostic.Problem(header(block), "Wrong number of labels",
			fmt.Sprintf("A block %s takes %s, got %d. Write %s.", block.Type, plural(want.count, "label"),
				len(block.Labels), want.example))}
	}
	if diags := checkLabels(block); diags.HasErrors() {
		return diags
	}
	switch block.Type {
	case "recipe":
		return s.declareRecipe(block)
	case "locals":
		diags := noBlocks(block.Body, "locals")
		for _, attr := range sortedAttributes(block.Body) {
			s.locals = append(s.locals, &localDecl{name: attr.Name, attr: attr})
		}
		return diags
	case "variable":
		return s.declareVariable(block)
	case "output":
		return s.declareOutput(block)
	case "module":
		return s.declareCall(block)
	case "moved":
		return s.declareMoved(block)
	case "tracking":
		s.observers = append(s.observers, &observerDecl{kind: block.Type, tracker: block.Labels[0], name: block.Labels[1],
			body: block.Body, header: header(block)})
		return nil
	case "alert":
		s.observers = append(s.observers, &observerDecl{kind: block.Type, name: block.Labels[0], body: block.Body,
			header: header(block)})
		return nil
	}
	attrs := block.Body.Attributes
	s.blocks = append(s.blocks, &blockDecl{kind: k, plugin: block.Labels[0], name: block.Labels[1], body: block.Body,
		header: header(block),
		count:  attrs["count"], forEach: attrs["for_each"], dependsOn: attrs["depends_on"]})
	return bothRepeated(attrs["count"], attrs["for_each"])
}

func blockTypes() []string {
	types := []string{"recipe", "variable", "locals", "output", "module", "moved", "alert", "tracking"}
	for _, k := range kind.All() {
		types = append(types, string(k))
	}
	return types
}

func bothRepeated(count, forEach *hclsyntax.Attribute) hcl.Diagnostics {
	if count == nil || forEach == nil {
		return nil
	}
	return hcl.Diagnostics{diagnostic.Problem(forEach.NameRange, "Both count and for_each",
		"A block takes either count or for_each, not both. Remove one of them.")}
}

func checkLabels(block *hclsyntax.Block) hcl.Diagnostics {
	var diags hcl.Diagnostics
	for i, label := range block.Labels {
		if !hclsyntax.ValidIdentifier(label) {
			diags = append(diags, diagnostic.Problem(block.LabelRanges[i], "Invalid name",
				fmt.Sprintf(
					"%q cannot be used in a reference. A name is letters, digits, _ and -, and starts with a letter.",
					label)))
		}
	}
	return diags
}

func (s *source) declareOutput(block *hclsyntax.Block) hcl.Diagnostics {
	diags := noBlocks(block.Body, "output")
	out := &outputDecl{name: block.Labels[0], header: header(block), value: block.Body.Attributes["value"]}
	for _, attr := range sortedAttributes(block.Body) {
		switch attr.Name {
		case "value":
		case "description":
			out.description = literalString(attr, &diags)
		case "sensitive":
			out.sensitive = literalBool(attr, &diags)
		default:
			diags = append(diags, diagnostic.UnknownAttribute(attr, "an output block",
				[]string{"value", "description", "sensitive"}))
		}
	}
	if out.value == nil {
		diags = append(diags, diagnostic.Problem(out.header, "Missing attribute",
			`An output needs a value: write value = trainer.grpo.policy.checkpoint, for example.`))
	}
	s.outputs = append(s.outputs, out)
	return diags
}

func (s *source) declareCall(block *hclsyntax.Block) hcl.Diagnostics {
	diags := noBlocks(block.Body, "module")
	attrs := block.Body.Attributes
	call := &callDecl{name: block.Labels[0], header: header(block), args: map[string]*hclsyntax.Attribute{},
		count: attrs["count"], forEach: attrs["for_each"], dependsOn: attrs["depends_on"]}
	diags = append(diags, bothRepeated(call.count, call.forEach)...)
	if attr := attrs["source"]; attr != nil {
		call.source, call.sourceAt = literalString(attr, &diags), attr.Expr.Range()
	} else {
		diags = append(diags, diagnostic.Problem(call.header, "Missing attribute",
			`A module needs a source: write source = "./folder".`))
	}
	call.required = Requirement{Module: true, Source: call.source, Range: call.sourceAt}
	var wrong hcl.Diagnostics // with the package
	for _, attr := range sortedAttributes(block.Body) {
		switch attr.Name {
		case "source", "count", "for_each", "depends_on":
			continue
		case "version", "checksum", "verify":
			// A module in a folder may have variables of these names.
			if IsPackage(call.source) {
				v, valueDiags := attr.Expr.Value(nil)
				if valueDiags.HasErrors() {
					wrong = append(wrong, diagnostic.Placed(valueDiags, attr.Expr.Range())...)
					continue
				}
				wrong = append(wrong, call.required.set(attr.Name, v, attr.Expr.Range())...)
				continue
			}
		}
		call.args[attr.Name] = attr
	}
	if wrong = append(wrong, call.required.check(call.sourceAt)...); len(wrong) > 0 {
		call.source = "" // nothing is fetched
	}
	s.calls = append(s.calls, call)
	return append(diags, wrong...)
}

// duplicates reports every name that is declared more than once, at each place after the first.
func (s *source) duplicates() hcl.Diagnostics {
	first := map[string]hcl.Range{}
	var diags hcl.Diagnostics
	see := func(what string, at hcl.Range) {
		if earlier, ok := first[what]; ok {
			diags = append(diags, diagnostic.Problem(at, "Declared twice",
				fmt.Sprintf("%s is already declared at %s. Names are unique: rename one of them.", what,
					diagnostic.At(earlier))))
			return
		}
		first[what] = at
	}
	for _, v := range s.variables {
		see("var."+v.name, v.header)
	}
	for _, l := range s.locals {
		see("local."+l.name, l.attr.NameRange)
	}
	for _, o := range s.outputs {
		see("output."+o.name, o.header)
	}
	for _, c := range s.calls {
		see("module."+c.name, c.header)
	}
	for _, o := range s.observers {
		see(o.address(), o.header)
	}
	for _, b := range s.blocks {
		see(string(b.kind)+"."+b.plugin+"."+b.name, b.header)
	}
	return diags
}

func plural(n int, noun string) string {
	switch n {
	case 0:
		return "no " + noun + "s"
	case 1:
		return "one " + noun
	case 2:
		return "two " + noun + "s"
	}
	return fmt.Sprintf("%d %ss", n, noun)
}
