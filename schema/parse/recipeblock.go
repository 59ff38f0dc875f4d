package parse

import (
	"fmt"
	"maps"
	"slices"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"

	"github.com/recipe-rl/recipe/internal/lazyregexp"
	"github.com/recipe-rl/recipe/schema/diagnostic"
)

var (
	recipeName  = lazyregexp.New(`^[a-zA-Z0-9][a-zA-Z0-9._-]{0,62}$`)
	constraints = lazyregexp.New(
		`^\s*(=|!=|>=|<=|>|<|~>)?\s*v?\d+(\.\d+){0,2}([-+][0-9A-Za-z.+-]+)?\s*` +
			`(,\s*(=|!=|>=|<=|>|<|~>)?\s*v?\d+(\.\d+){0,2}([-+][0-9A-Za-z.+-]+)?\s*)*$`)
	checksum = lazyregexp.New(`^sha256:[0-9a-f]{64}$`)
)

// declareRecipe reads `recipe { name required_version required_plugins {} }`.
func (s *Source) declareRecipe(block *hclsyntax.Block) hcl.Diagnostics {
	if s.Recipe != nil {
		return hcl.Diagnostics{diagnostic.Problem(Header(block), "Declared twice",
			fmt.Sprintf("The recipe block is already declared at %s. A file has one: merge them.",
				diagnostic.At(s.Recipe.Header)))}
	}
	s.Recipe = &Recipe{Header: Header(block)}
	var diags hcl.Diagnostics
	for _, attr := range SortedAttributes(block.Body) {
		switch attr.Name {
		case "name":
			s.Recipe.Name = LiteralString(attr, &diags)
			if s.Recipe.Name != "" && !recipeName.MatchString(s.Recipe.Name) {
				diags = append(diags, diagnostic.Problem(attr.Expr.Range(), "Invalid name",
					fmt.Sprintf(
						"The name of a recipe becomes a folder: expected up to 63 letters, digits, '.', '_' and '-', "+
							"starting with a letter or digit, got %q.", s.Recipe.Name)))
			}
		case "required_version":
			s.Recipe.RequiredVersion = LiteralString(attr, &diags)
			s.Recipe.VersionRange = attr.Expr.Range()
			diags = append(diags, checkConstraint(s.Recipe.RequiredVersion, s.Recipe.VersionRange)...)
		case "required_plugins":
			diags = append(diags, diagnostic.Problem(attr.NameRange, "Block expected",
				"required_plugins is a block: write required_plugins { vllm = { source = \"…\", version = \"…\" } } "+
					"without the equals sign."))
		default:
			diags = append(diags, diagnostic.UnknownAttribute(attr, "the recipe block",
				[]string{"name", "required_version", "required_plugins"}))
		}
	}
	for _, inner := range block.Body.Blocks {
		if inner.Type != "required_plugins" || len(inner.Labels) > 0 {
			diags = append(diags, diagnostic.Problem(Header(inner), "Unknown block",
				fmt.Sprintf("The recipe block contains only required_plugins { … }, got %s.%s", inner.Type,
					diagnostic.DidYouMean(inner.Type, []string{"required_plugins"}))))
			continue
		}
		diags = append(diags, NoBlocks(inner.Body, "required_plugins")...)
		for _, attr := range SortedAttributes(inner.Body) {
			diags = append(diags, s.declareRequired(attr)...)
		}
	}
	return diags
}

func (s *Source) declareRequired(attr *hclsyntax.Attribute) hcl.Diagnostics {
	v, diags := attr.Expr.Value(nil)
	if diags.HasErrors() {
		s.Recipe.Refused = append(s.Recipe.Refused, attr.Name)
		return diagnostic.Placed(diags, attr.Expr.Range())
	}
	example := fmt.Sprintf(`write %[1]s = { source = "./bin/%[1]s", version = "~> 0.1" }`, attr.Name)
	if !v.Type().IsObjectType() || v.IsNull() {
		s.Recipe.Refused = append(s.Recipe.Refused, attr.Name)
		return hcl.Diagnostics{diagnostic.Problem(attr.Expr.Range(), "Wrong type",
			fmt.Sprintf("Expected an object with source and version, got %s: %s.", v.Type().FriendlyName(), example))}
	}
	p := Requirement{Name: attr.Name, Range: attr.Range()}
	given := v.AsValueMap()
	for _, name := range slices.Sorted(maps.Keys(given)) {
		diags = append(diags, p.set(name, given[name], attr.Expr.Range())...)
	}
	wrong := p.check(attr.Expr.Range())
	if len(wrong) > 0 || len(diags) > 0 && !IsPath(p.Source) { // nothing is fetched
		s.Recipe.Refused = append(s.Recipe.Refused, p.Name)
		return append(diags, wrong...)
	}
	s.Recipe.Plugins = append(s.Recipe.Plugins, p)
	return diags
}
