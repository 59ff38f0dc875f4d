package parse

import (
	"fmt"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"

	"github.com/recipe-rl/recipe/schema/diagnostic"
	"github.com/recipe-rl/recipe/sdk/kind"
)

// Source is what one recipe file declares, before anything is evaluated. Modules that share a folder share it.
type Source struct {
	Path      string // as given by the user or, in a module, joined to the caller's folder
	Dir       string
	Bytes     []byte
	Recipe    *Recipe
	Variables []*Variable
	Locals    []*Local
	Outputs   []*Output
	Calls     []*Call
	Blocks    []*Block
	Observers []*Observer
	Moved     []*Move
}

// Block is a block of one of the kinds as written.
type Block struct {
	Kind         kind.Kind
	Plugin, Name string
	Body         *hclsyntax.Body
	Header       hcl.Range
	Count        *hclsyntax.Attribute
	ForEach      *hclsyntax.Attribute
	DependsOn    *hclsyntax.Attribute
	Implicit     bool // the file does not declare it
}

// Repeated reports whether the block has instances, each with a key.
func (d *Block) Repeated() bool { return d.Count != nil || d.ForEach != nil }

// Local is one value of a locals block.
type Local struct {
	Name string
	Attr *hclsyntax.Attribute
}

// Output is an output block.
type Output struct {
	Name        string
	Description string
	Sensitive   bool
	Value       *hclsyntax.Attribute
	Header      hcl.Range
}

// Call is a module block: a folder or a package, its arguments and how often.
type Call struct {
	Name      string
	Source    string
	SourceAt  hcl.Range
	Required  Requirement // of a module from a package; its name is set when the tree of modules is built
	Args      map[string]*hclsyntax.Attribute
	Header    hcl.Range
	Count     *hclsyntax.Attribute
	ForEach   *hclsyntax.Attribute
	DependsOn *hclsyntax.Attribute
}

// Recipe is the recipe block of a file.
type Recipe struct {
	Name            string
	RequiredVersion string
	VersionRange    hcl.Range
	Plugins         []Requirement
	Refused         []string // plugins whose entry in required_plugins was reported, and is none
	Header          hcl.Range
}

// labels are how many labels each block of a file takes, with an example for the message.
var labels = map[string]struct {
	count   int
	example string
}{
	"recipe":     {0, `recipe { … }`},
	"locals":     {0, `locals { … }`},
	"variable":   {1, `variable "model" { … }`},
	"output":     {1, `output "checkpoint" { … }`},
	"module":     {1, `module "eval" { … }`},
	"moved":      {0, `moved { … }`},
	"alert":      {1, `alert "reward_fell" { … }`},
	"evaluation": {1, `evaluation "held_out" { … }`},
	"tracking":   {2, `tracking "tensorboard" "curves" { … }`},
}

// declare sorts the blocks of a parsed file into a source.
func declare(path, dir string, src []byte, body *hclsyntax.Body) (*Source, hcl.Diagnostics) {
	s := &Source{Path: path, Dir: dir, Bytes: src}
	var diags hcl.Diagnostics
	for _, attr := range SortedAttributes(body) {
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

func (s *Source) declareBlock(block *hclsyntax.Block) hcl.Diagnostics {
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
		return hcl.Diagnostics{diagnostic.Problem(Header(block), "Wrong number of labels",
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
		diags := NoBlocks(block.Body, "locals")
		for _, attr := range SortedAttributes(block.Body) {
			s.Locals = append(s.Locals, &Local{Name: attr.Name, Attr: attr})
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
		s.Observers = append(s.Observers, &Observer{Kind: block.Type, Tracker: block.Labels[0], Name: block.Labels[1],
			Body: block.Body, Header: Header(block)})
		return nil
	case "alert", "evaluation":
		s.Observers = append(s.Observers, &Observer{Kind: block.Type, Name: block.Labels[0], Body: block.Body,
			Header: Header(block)})
		return nil
	}
	attrs := block.Body.Attributes
	s.Blocks = append(s.Blocks, &Block{Kind: k, Plugin: block.Labels[0], Name: block.Labels[1], Body: block.Body,
		Header: Header(block),
		Count:  attrs["count"], ForEach: attrs["for_each"], DependsOn: attrs["depends_on"]})
	return BothRepeated(attrs["count"], attrs["for_each"])
}

func blockTypes() []string {
	types := []string{"recipe", "variable", "locals", "output", "module", "moved", "alert", "evaluation", "tracking"}
	for _, k := range kind.All() {
		types = append(types, string(k))
	}
	return types
}

// BothRepeated is the error for a block with count and for_each.
func BothRepeated(count, forEach *hclsyntax.Attribute) hcl.Diagnostics {
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

func (s *Source) declareOutput(block *hclsyntax.Block) hcl.Diagnostics {
	diags := NoBlocks(block.Body, "output")
	out := &Output{Name: block.Labels[0], Header: Header(block), Value: block.Body.Attributes["value"]}
	for _, attr := range SortedAttributes(block.Body) {
		switch attr.Name {
		case "value":
		case "description":
			out.Description = LiteralString(attr, &diags)
		case "sensitive":
			out.Sensitive = literalBool(attr, &diags)
		default:
			diags = append(diags, diagnostic.UnknownAttribute(attr, "an output block",
				[]string{"value", "description", "sensitive"}))
		}
	}
	if out.Value == nil {
		diags = append(diags, diagnostic.Problem(out.Header, "Missing attribute",
			`An output needs a value: write value = trainer.grpo.policy.checkpoint, for example.`))
	}
	s.Outputs = append(s.Outputs, out)
	return diags
}

func (s *Source) declareCall(block *hclsyntax.Block) hcl.Diagnostics {
	diags := NoBlocks(block.Body, "module")
	attrs := block.Body.Attributes
	call := &Call{Name: block.Labels[0], Header: Header(block), Args: map[string]*hclsyntax.Attribute{},
		Count: attrs["count"], ForEach: attrs["for_each"], DependsOn: attrs["depends_on"]}
	diags = append(diags, BothRepeated(call.Count, call.ForEach)...)
	if attr := attrs["source"]; attr != nil {
		call.Source, call.SourceAt = LiteralString(attr, &diags), attr.Expr.Range()
	} else {
		diags = append(diags, diagnostic.Problem(call.Header, "Missing attribute",
			`A module needs a source: write source = "./folder".`))
	}
	call.Required = Requirement{Module: true, Source: call.Source, Range: call.SourceAt}
	var wrong hcl.Diagnostics // with the package
	for _, attr := range SortedAttributes(block.Body) {
		switch attr.Name {
		case "source", "count", "for_each", "depends_on":
			continue
		case "version", "checksum", "verify":
			// A module in a folder may have variables of these names.
			if IsPackage(call.Source) {
				v, valueDiags := attr.Expr.Value(nil)
				if valueDiags.HasErrors() {
					wrong = append(wrong, diagnostic.Placed(valueDiags, attr.Expr.Range())...)
					continue
				}
				wrong = append(wrong, call.Required.set(attr.Name, v, attr.Expr.Range())...)
				continue
			}
		}
		call.Args[attr.Name] = attr
	}
	if wrong = append(wrong, call.Required.check(call.SourceAt)...); len(wrong) > 0 {
		call.Source = "" // nothing is fetched
	}
	s.Calls = append(s.Calls, call)
	return append(diags, wrong...)
}

// duplicates reports every name that is declared more than once, at each place after the first.
func (s *Source) duplicates() hcl.Diagnostics {
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
	for _, v := range s.Variables {
		see("var."+v.Name, v.Header)
	}
	for _, l := range s.Locals {
		see("local."+l.Name, l.Attr.NameRange)
	}
	for _, o := range s.Outputs {
		see("output."+o.Name, o.Header)
	}
	for _, c := range s.Calls {
		see("module."+c.Name, c.Header)
	}
	for _, o := range s.Observers {
		see(o.Address(), o.Header)
	}
	for _, b := range s.Blocks {
		see(string(b.Kind)+"."+b.Plugin+"."+b.Name, b.Header)
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
