package schema

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/zclconf/go-cty/cty"

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
func (s *source) declareRecipe(block *hclsyntax.Block) hcl.Diagnostics {
	if s.recipe != nil {
		return hcl.Diagnostics{diagnostic.Problem(header(block), "Declared twice",
			fmt.Sprintf("The recipe block is already declared at %s. A file has one: merge them.",
				diagnostic.At(s.recipe.header)))}
	}
	s.recipe = &recipeDecl{header: header(block)}
	var diags hcl.Diagnostics
	for _, attr := range sortedAttributes(block.Body) {
		switch attr.Name {
		case "name":
			s.recipe.name = literalString(attr, &diags)
			if s.recipe.name != "" && !recipeName.MatchString(s.recipe.name) {
				diags = append(diags, diagnostic.Problem(attr.Expr.Range(), "Invalid name",
					fmt.Sprintf(
						"The name of a recipe becomes a folder: expected up to 63 letters, digits, '.', '_' and '-', "+
							"starting with a letter or digit, got %q.", s.recipe.name)))
			}
		case "required_version":
			s.recipe.requiredVersion = literalString(attr, &diags)
			s.recipe.versionRange = attr.Expr.Range()
			diags = append(diags, checkConstraint(s.recipe.requiredVersion, s.recipe.versionRange)...)
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
			diags = append(diags, diagnostic.Problem(header(inner), "Unknown block",
				fmt.Sprintf("The recipe block contains only required_plugins { … }, got %s.%s", inner.Type,
					diagnostic.DidYouMean(inner.Type, []string{"required_plugins"}))))
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
		s.recipe.refused = append(s.recipe.refused, attr.Name)
		return diagnostic.Placed(diags, attr.Expr.Range())
	}
	example := fmt.Sprintf(`write %[1]s = { source = "./bin/%[1]s", version = "~> 0.1" }`, attr.Name)
	if !v.Type().IsObjectType() || v.IsNull() {
		s.recipe.refused = append(s.recipe.refused, attr.Name)
		return hcl.Diagnostics{diagnostic.Problem(attr.Expr.Range(), "Wrong type",
			fmt.Sprintf("Expected an object with source and version, got %s: %s.", v.Type().FriendlyName(), example))}
	}
	p := Requirement{Name: attr.Name, Range: attr.Range()}
	given := v.AsValueMap()
	for _, name := range slices.Sorted(maps.Keys(given)) {
		diags = append(diags, p.set(name, given[name], attr.Expr.Range())...)
	}
	wrong := p.check(attr.Expr.Range())
	if len(wrong) > 0 || len(diags) > 0 && !isPath(p.Source) { // nothing is fetched
		s.recipe.refused = append(s.recipe.refused, p.Name)
		return append(diags, wrong...)
	}
	s.recipe.plugins = append(s.recipe.plugins, p)
	return diags
}

// set reads one attribute of a required plugin, or of a module from a package.
func (q *Requirement) set(name string, value cty.Value, at hcl.Range) hcl.Diagnostics {
	fields := map[string]*string{"source": &q.Source, "version": &q.Version, "checksum": &q.Checksum}
	field, known := fields[name]
	switch {
	case name == "verify":
		return q.Verify.read(value, at)
	case !known:
		names := []string{"source", "version", "checksum", "verify"}
		return hcl.Diagnostics{diagnostic.Problem(at, "Unknown attribute",
			fmt.Sprintf("A required plugin has source, version, checksum and verify, got %q.%s", name,
				diagnostic.DidYouMean(name, names)))}
	case value.Type() != cty.String || value.IsNull():
		return hcl.Diagnostics{diagnostic.Problem(at, "Wrong type", fmt.Sprintf("%s is a string, got %s.", name,
			value.Type().FriendlyName()))}
	}
	switch *field = value.AsString(); {
	case *field == "":
		return hcl.Diagnostics{diagnostic.Problem(at, "Empty text", fmt.Sprintf("%s is empty: write it, or remove it.",
			name))}
	case name == "version":
		return checkConstraint(q.Version, at)
	}
	return nil
}

// check reports attributes that do not fit the source.
func (q *Requirement) check(at hcl.Range) hcl.Diagnostics {
	const example = `checksum = "sha256:…", which sha256sum prints`
	detail := ""
	switch {
	case strings.HasPrefix(q.Source, "http://"):
		detail = "An archive is fetched by https: write https:// or oci://."
	case isArchive(q.Source) && q.Checksum == "":
		detail = "An archive from the network needs its checksum: write " + example + "."
	case isArchive(q.Source) && !checksum.MatchString(q.Checksum):
		detail = fmt.Sprintf("Expected %s, got %q.", example, q.Checksum)
	case isArchive(q.Source) && q.Module && q.Version != "":
		detail = "A module in an archive has no version: its checksum says which one it is. Remove version."
	case !isArchive(q.Source) && q.Checksum != "":
		detail = "Only an archive (https://…) takes a checksum; the lock has the digests of packages (oci://…). Remove it."
	default:
		return nil
	}
	return hcl.Diagnostics{diagnostic.Problem(at, "Invalid source", detail)}
}

// read reads verify = { key = "…" } or { identity = "…", issuer = "…", trusted_root = "…" }.
func (v *Verify) read(value cty.Value, at hcl.Range) hcl.Diagnostics {
	const expected = `verify is { key = "author.pub" }, or { identity = "…", issuer = "…", trusted_root = "…" }`
	if !value.Type().IsObjectType() || value.IsNull() {
		return hcl.Diagnostics{diagnostic.Problem(at, "Wrong type", fmt.Sprintf("Got %s; %s.", value.Type().FriendlyName(),
			expected))}
	}
	fields := map[string]*string{"key": &v.Key, "identity": &v.Identity, "issuer": &v.Issuer,
		"trusted_root": &v.TrustedRoot}
	given := value.AsValueMap()
	for _, name := range slices.Sorted(maps.Keys(given)) {
		one := given[name]
		field, known := fields[name]
		if !known || one.Type() != cty.String || one.IsNull() {
			return hcl.Diagnostics{diagnostic.Problem(at, "Invalid verify", fmt.Sprintf("%q is not expected, or no string; %s.",
				name,
				expected))}
		}
		*field = one.AsString()
	}
	byKey, byIdentity := v.Key != "", v.Identity != "" && v.Issuer != "" && v.TrustedRoot != ""
	if byKey == byIdentity || byKey && v.Identity+v.Issuer+v.TrustedRoot != "" {
		return hcl.Diagnostics{diagnostic.Problem(at, "Invalid verify", diagnostic.UpperFirst(expected)+".")}
	}
	return nil
}

func checkConstraint(text string, at hcl.Range) hcl.Diagnostics {
	if text == "" || constraints.MatchString(text) {
		return nil
	}
	return hcl.Diagnostics{diagnostic.Problem(at, "Invalid version constraint",
		fmt.Sprintf(`Expected something like ">= 0.1" or "~> 1.2, != 1.2.3", got %q.`, text))}
}
