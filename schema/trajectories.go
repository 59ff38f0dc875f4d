package schema

import (
	"fmt"
	"slices"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"

	"github.com/recipe-rl/recipe/sdk/kind"
)

// defaultTrajectories is the block that a recipe gets when it needs one and declares none.
var defaultTrajectories = blockName{kind.Trajectories, "builtin", "default"}

var emptyBody = &hclsyntax.Body{Attributes: hclsyntax.Attributes{}}

// wireTrajectories connects every environment, trainer and sync block without a `trajectories` attribute to the only
// block of that kind: in its own module, else in one above, else a default block in the root.
func (p *evaluator) wireTrajectories(root *module, nodes []*node) []*node {
	var fallback *node
	for _, n := range nodes {
		if !wantsTrajectories(n) {
			continue
		}
		candidates := p.trajectoriesFor(n.module)
		if len(candidates) == 0 {
			if fallback == nil {
				if fallback = p.synthesize(root); fallback == nil {
					return nodes
				}
				nodes = append(nodes, fallback)
			}
			candidates = []*node{fallback}
		}
		if len(candidates) > 1 || candidates[0].block.repeated() {
			labels := make([]string, 0, len(candidates))
			for _, c := range candidates {
				label := c.label
				if c.block.repeated() {
					label += exampleKey(c)
				}
				labels = append(labels, label)
			}
			p.diags = append(p.diags, problem(n.header, "Several trajectories blocks",
				fmt.Sprintf(
					"There are several trajectories blocks; %s does not choose one. Write trajectories = … with one "+
						"of %s.", n.label, strings.Join(labels, ", "))))
			continue
		}
		n.trajectories = candidates[0]
		n.edges = append(n.edges, edge{to: candidates[0], attribute: "trajectories", rng: n.header})
	}
	return nodes
}

func wantsTrajectories(n *node) bool {
	if n.block == nil || n.plugin == nil || (n.block.kind != kind.Environment && n.block.kind != kind.Trainer &&
		n.block.kind != kind.Sync) || n.block.body.Attributes["trajectories"] != nil {
		return false
	}
	a := n.plugin.Config.Attribute("trajectories")
	return a != nil && !a.List && slices.Contains(a.References, kind.Trajectories)
}

func (p *evaluator) trajectoriesFor(m *module) []*node {
	for ; m != nil; m = m.parent {
		var found []*node
		for _, d := range m.source.blocks {
			if d.kind == kind.Trajectories {
				if n := m.blocks[blockName{d.kind, d.plugin, d.name}]; n.block == d {
					found = append(found, n)
				}
			}
		}
		if len(found) > 0 {
			return found
		}
	}
	return nil
}

func (p *evaluator) synthesize(root *module) *node {
	if p.opts.Plugins == nil {
		return nil
	}
	plugin, err := p.opts.Plugins.Lookup(kind.Trajectories, defaultTrajectories.plugin)
	if err != nil || plugin == nil {
		return nil
	}
	at := hcl.Range{Filename: root.source.path, Start: hcl.InitialPos, End: hcl.InitialPos}
	if root.source.recipe != nil {
		at = root.source.recipe.header
	}
	decl := &blockDecl{kind: kind.Trajectories, plugin: defaultTrajectories.plugin, name: defaultTrajectories.name,
		body: emptyBody, header: at}
	n := &node{label: defaultTrajectories.String(), header: at, module: root, scope: root, block: decl, plugin: plugin}
	root.blocks[defaultTrajectories] = n
	return n
}
