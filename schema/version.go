package schema

import (
	"fmt"

	"github.com/hashicorp/go-version"
	"github.com/hashicorp/hcl/v2"
)

// Program is what Plugins implements to say which version of recipe this is; required_version is compared with it.
type Program interface{ ProgramVersion() string }

// satisfies compares a version with a constraint such as "~> 0.1". A build without a number (0.0.0, or no version at
// all) satisfies everything: whoever made it knows what it is. So does a pre-release of a version that does.
func satisfies(have, constraint string) bool {
	v, err := version.NewVersion(have)
	if err != nil || v.Core().Equal(version.Must(version.NewVersion("0.0.0"))) {
		return true
	}
	wanted, err := version.NewConstraint(constraint)
	// what is no constraint has been reported where it stands
	return err != nil || wanted.Check(v) || wanted.Check(v.Core())
}

// checkProgram compares required_version of every file with this program.
func (p *evaluator) checkProgram() {
	program, ok := p.opts.Plugins.(Program)
	if !ok {
		return
	}
	have := program.ProgramVersion()
	seen := map[*recipeDecl]bool{}
	for _, m := range p.loader.modules {
		r := m.source.recipe
		if r == nil || seen[r] || r.requiredVersion == "" || satisfies(have, r.requiredVersion) {
			continue
		}
		seen[r] = true // a module may be called often
		p.diags = append(p.diags, problem(r.versionRange, "Another version needed",
			fmt.Sprintf(
				"This file requires recipe %s, and this is recipe %s. Run it with a version that fits, or change "+
					"required_version.", r.requiredVersion, have)))
	}
}

// checkPlugin compares the version of a plugin that a recipe requires with the one that there is.
func (p *evaluator) checkPlugin(n *node, s *PluginSchema) {
	q, ok := p.loader.required[n.block.plugin]
	if !ok || q.Version == "" || satisfies(s.Version, q.Version) {
		return
	}
	p.diags = append(p.diags, problem(n.header, "Another version needed",
		fmt.Sprintf(
			"The %s plugin %q has the version %s, and %s requires %s. Use a plugin of a version that fits, or change "+
				"required_plugins.", s.Kind, s.Name, s.Version, at2(q.Range), q.Version)))
}

// missing says that there is no such plugin, and how one is named.
func (p *evaluator) missing(n *node, names []string) *hcl.Diagnostic {
	text := fmt.Sprintf("There is no %s plugin %q; known are %s.%s ", n.block.kind, n.block.plugin, orNothing(names),
		didYouMean(n.block.plugin, names))
	if q, ok := p.loader.required[n.block.plugin]; ok && !isPath(q.Source) {
		text += fmt.Sprintf(
			"required_plugins gives its source as %q, which this version cannot fetch: get the binary yourself and "+
				"write its path, source = \"./bin/%s\".", q.Source, q.Name)
	} else {
		text += fmt.Sprintf(
			"A plugin that is not built in is a binary of its own, named by its path: recipe { required_plugins { %s "+
				"= { source = \"./path/to/binary\" } } }.", n.block.plugin)
	}
	return problem(n.header, "Missing plugin", text)
}
