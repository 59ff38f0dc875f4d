package schema

import (
	"fmt"
	"slices"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"

	"github.com/recipe-rl/recipe/schema/diagnostic"
	"github.com/recipe-rl/recipe/schema/parse"
	"github.com/recipe-rl/recipe/sdk/kind"
)

// defaultTrajectories is the block that a recipe gets when it needs one and declares none.
var defaultTrajectories = blockName{kind.Trajectories, "builtin", "default"}

// wireTrajectories connects every environment, trainer and sync block without a `trajectories` attribute to the only
// block of that kind: in its own module, else in one above, else to the implicit block, which comes into the root.
func (p *evaluator) wireTrajectories(root *module, nodes []*node, implicit *node) []*node {
	for _, n := range nodes {
		if !wantsTrajectories(n) {
			continue
		}
		candidates := trajectoriesFor(n.module)
		if len(candidates) == 0 {
			if implicit == nil {
				return nodes
			}
			if root.blocks[defaultTrajectories] == nil {
				root.blocks[defaultTrajectories] = implicit
				p.prepare(implicit)
				nodes = append(nodes, implicit)
			}
			candidates = []*node{implicit}
		}
		if len(candidates) > 1 || candidates[0].block.Repeated() {
			labels := make([]string, 0, len(candidates))
			for _, c := range candidates {
				label := c.label
				if c.block.Repeated() {
					label += exampleKey(c)
				}
				labels = append(labels, label)
			}
			p.diags = append(p.diags, diagnostic.Problem(n.header, "Several trajectories blocks",
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
	if n.block == nil || n.plugin == nil || (n.block.Kind != kind.Environment && n.block.Kind != kind.Trainer &&
		n.block.Kind != kind.Sync) || n.block.Body.Attributes["trajectories"] != nil {
		return false
	}
	a := n.plugin.Config.Attribute("trajectories")
	return a != nil && !a.List && slices.Contains(a.References, kind.Trajectories)
}

// trajectoriesFor are the trajectories blocks of a module, else of the nearest one above that has any.
func trajectoriesFor(m *module) []*node {
	for ; m != nil; m = m.parent {
		var found []*node
		for _, d := range m.source.Blocks {
			if d.Kind == kind.Trajectories {
				if n := m.blocks[blockName{d.Kind, d.Plugin, d.Name}]; n.block == d {
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

// implicitTrajectories is the default block, where a block needs it. It is no part of the recipe yet.
func implicitTrajectories(root *module, nodes []*node, plugins Plugins) *node {
	if plugins == nil || !slices.ContainsFunc(nodes, func(n *node) bool {
		return wantsTrajectories(n) && len(trajectoriesFor(n.module)) == 0
	}) {
		return nil
	}
	plugin, err := plugins.Lookup(kind.Trajectories, defaultTrajectories.plugin)
	if err != nil || plugin == nil {
		return nil
	}
	at := hcl.Range{Filename: root.source.Path, Start: hcl.InitialPos, End: hcl.InitialPos}
	if root.source.Recipe != nil {
		at = root.source.Recipe.Header
	}
	decl := &parse.Block{Kind: kind.Trajectories, Plugin: defaultTrajectories.plugin, Name: defaultTrajectories.name,
		Body: &hclsyntax.Body{Attributes: hclsyntax.Attributes{}}, Header: at, Implicit: true}
	return &node{label: defaultTrajectories.String(), header: at, module: root, scope: root, block: decl, plugin: plugin}
}
