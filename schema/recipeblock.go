package schema

import (
	"fmt"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/zclconf/go-cty/cty"

	"github.com/recipe-rl/recipe/sdk/lazyregexp"
)

var (
	recipeName  = lazyregexp.New(`^[a-zA-Z0-9][a-zA-Z0-9._-]{0,62}$`)
	constraints = lazyregexp.New(
		`^\s*(=|!=|>=|<=|>|<|~>)?\s*v?\d+(\.\d+){0,2}([-+][0-9A-Za-z.+-]+)?\s*` +
			`(,\s*(=|!=|>=|<=|>|<|~>)?\s*v?\d+(\.\d+){0,2}([-+][0-9A-Za-z.+-]+)?\s*)*$`)
)

// declareRecipe reads `recipe { name required_version required_plugins {} }`.
func (s *source) declareRecipe(block *hclsyntax.Block) hcl.Diagnostics {
	if s.recipe != nil {
		return hcl.Diagnostics{problem(header(block), "Declared twice",
			fmt.Sprintf("The recipe block is already declared at %s. A file has one: merge them.", at2(s.recipe.header)))}
	}
	s.recipe = &recipeDecl{header: header(block)}
	var diags hcl.Diagnostics
	for _, attr := range sortedAttributes(block.Body) {
		switch attr.Name {
		case "name":
			s.recipe.name = literalString(attr, &diags)
			if s.recipe.name != "" && !recipeName.MatchString(s.recipe.name) {
				diags = append(diags, problem(attr.Expr.Range(), "Invalid name",
					fmt.Sprintf(
						"The name of a recipe becomes a folder: expected up to 63 letters, digits, '.', '_' and '-', "+
							"starting with a letter or digit, got %q.", s.recipe.name)))
			}
		case "required_version":
			s.recipe.requiredVersion = literalString(attr, &diags)
			s.recipe.versionRange = attr.Expr.Range()
			diags = append(diags, checkConstraint(s.recipe.requiredVersion, s.recipe.versionRange)...)
		case "required_plugins":
			diags = append(diags, problem(attr.NameRange, "Block expected",
				"required_plugins is a block: write required_plugins { vllm = { source = \"…\", version = \"…\" } } "+
					"without the equals sign."))
		default:
			diags = append(diags, unknownAttribute(attr, "the recipe block",
				[]string{"name", "required_version", "required_plugins"}))
		}
	}
	for _, inner := range block.Body.Blocks {
		if inner.Type != "required_plugins" || len(inner.Labels) > 0 {
			diags = append(diags, problem(header(inner), "Unknown block",
				fmt.Sprintf("The recipe block contains only required_plugins { … }, got %s.%s", inner.Type,
					didYouMean(inner.Type, []string{"required_plugins"}))))
			continue
		}
		diags = append(diags, noBlocks(inner.Body, "required_plugins")...)
		for _, attr := range sortedAttributes(inner.Body) {
			diags = append(diags, s.declareRequired(attr)...)
		}
	}
	return diags
}

func (s *source) declareRequired(attr *hclsyntax.Attribute) hcl.Diagnostics {
	v, diags := attr.Expr.Value(nil)
	if diags.HasErrors() {
		return placed(diags, attr.Expr.Range())
	}
	example := fmt.Sprintf(`write %[1]s = { source = "./bin/%[1]s", version = "~> 0.1" }`, attr.Name)
	if !v.Type().IsObjectType() || v.IsNull() {
		return hcl.Diagnostics{problem(attr.Expr.Range(), "Wrong type",
			fmt.Sprintf("Expected an object with source and version, got %s: %s.", v.Type().FriendlyName(), example))}
	}
	p := RequiredPlugin{Name: attr.Name, Range: attr.Range()}
	for name, value := range v.AsValueMap() {
		if name == "verify" {
			diags = append(diags, p.Verify.read(value, attr.Expr.Range())...)
			continue
		}
		if value.Type() != cty.String || value.IsNull() {
			diags = append(diags, problem(attr.Expr.Range(), "Wrong type",
				fmt.Sprintf("%s of a required plugin is a string, got %s: %s.", name, value.Type().FriendlyName(),
					example)))
			continue
		}
		switch name {
		case "source":
			p.Source = value.AsString()
		case "version":
			p.Version = value.AsString()
			diags = append(diags, checkConstraint(p.Version, attr.Expr.Range())...)
		default:
			diags = append(diags, problem(attr.Expr.Range(), "Unknown attribute",
				fmt.Sprintf("A required plugin has source, version and verify, got %q.%s", name,
					didYouMean(name, []string{"source", "version", "verify"}))))
		}
	}
	s.recipe.plugins = append(s.recipe.plugins, p)
	return diags
}

// read reads verify = { key = "…" } or { identity = "…", issuer = "…", trusted_root = "…" }.
func (v *Verify) read(value cty.Value, at hcl.Range) hcl.Diagnostics {
	const expected = `verify is { key = "author.pub" }, or { identity = "…", issuer = "…", trusted_root = "…" }`
	if !value.Type().IsObjectType() || value.IsNull() {
		return hcl.Diagnostics{problem(at, "Wrong type", fmt.Sprintf("Got %s; %s.", value.Type().FriendlyName(), expected))}
	}
	fields := map[string]*string{"key": &v.Key, "identity": &v.Identity, "issuer": &v.Issuer,
		"trusted_root": &v.TrustedRoot}
	given := value.AsValueMap()
	for _, name := range sortedKeys(given) {
		one := given[name]
		field, known := fields[name]
		if !known || one.Type() != cty.String || one.IsNull() {
			return hcl.Diagnostics{problem(at, "Invalid verify", fmt.Sprintf("%q is not expected, or no string; %s.", name,
				expected))}
		}
		*field = one.AsString()
	}
	byKey, byIdentity := v.Key != "", v.Identity != "" && v.Issuer != "" && v.TrustedRoot != ""
	if byKey == byIdentity || byKey && v.Identity+v.Issuer+v.TrustedRoot != "" {
		return hcl.Diagnostics{problem(at, "Invalid verify", upperFirst(expected)+".")}
	}
	return nil
}

func checkConstraint(text string, at hcl.Range) hcl.Diagnostics {
	if text == "" || constraints.MatchString(text) {
		return nil
	}
	return hcl.Diagnostics{problem(at, "Invalid version constraint",
		fmt.Sprintf(`Expected something like ">= 0.1" or "~> 1.2, != 1.2.3", got %q.`, text))}
}
