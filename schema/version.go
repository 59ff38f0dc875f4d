package schema

import (
	"fmt"

	"github.com/hashicorp/go-version"
	"github.com/hashicorp/hcl/v2"

	"github.com/recipe-rl/recipe/schema/diagnostic"
	"github.com/recipe-rl/recipe/schema/parse"
)

// satisfies compares a version with a constraint such as "~> 0.1". A development build (0.0.0, or no version at all)
// satisfies everything. A pre-release satisfies what its release satisfies.
func satisfies(have, constraint string) bool {
	v, err := version.NewVersion(have)
	if err != nil || v.Core().Equal(version.Must(version.NewVersion("0.0.0"))) {
		return true
	}
	wanted, err := version.NewConstraint(constraint)
	// an invalid constraint is reported where it is declared
	return err != nil || wanted.Check(v) || wanted.Check(v.Core())
}

// checkProgram compares required_version of every file with this program.
func (l *lookups) checkProgram(modules []*module) {
	program, ok := l.plugins.(Program)
	if !ok {
		return
	}
	have := program.ProgramVersion()
	seen := map[*parse.Recipe]bool{}
	for _, m := range modules {
		r := m.source.Recipe
		if r == nil || seen[r] || r.RequiredVersion == "" || satisfies(have, r.RequiredVersion) {
			continue
		}
		seen[r] = true // a module may be called often
		l.diags = append(l.diags, diagnostic.Problem(r.VersionRange, "Version mismatch",
			fmt.Sprintf(
				"This file requires recipe %s; this is recipe %s. Use a matching version, or change required_version.",
				r.RequiredVersion, have)))
	}
}

// checkPlugin compares the version of a plugin with the version that the recipe requires.
func (l *lookups) checkPlugin(n *node, s *PluginSchema) {
	q, ok := l.required[n.block.Plugin]
	if !ok || q.Version == "" || satisfies(s.Version, q.Version) {
		return
	}
	l.diags = append(l.diags, diagnostic.Problem(n.header, "Version mismatch",
		fmt.Sprintf(
			"The %s plugin %q has version %s; %s requires %s. Use a plugin of a matching version, or change "+
				"required_plugins.", s.Kind, s.Name, s.Version, diagnostic.At(q.Range), q.Version)))
}

// missing reports an unknown plugin, and how to name a plugin's binary.
func (l *lookups) missing(n *node, names []string) *hcl.Diagnostic {
	q, required := l.required[n.block.Plugin]
	meant := ""
	if !required {
		meant = diagnostic.DidYouMean(n.block.Plugin, names)
	}
	text := fmt.Sprintf("There is no %s plugin %q; known are %s.%s ", n.block.Kind, n.block.Plugin, diagnostic.List(names),
		meant)
	switch {
	case required && parse.IsPackage(q.Source):
		text += fmt.Sprintf("The package %s has a plugin of that name, of another kind.", q.Source)
	case required && !parse.IsPath(q.Source):
		text += fmt.Sprintf("required_plugins gives its source as %q: expected the address of a package, "+
			"\"oci://HOST/PATH\", or the path of a binary, \"./bin/%s\".", q.Source, q.Name)
	default:
		text += fmt.Sprintf(
			"A plugin that is not built in is a separate binary, named by its path: recipe { required_plugins { %s "+
				"= { source = \"./path/to/binary\" } } }.", n.block.Plugin)
	}
	return diagnostic.Problem(n.header, "Missing plugin", text)
}
