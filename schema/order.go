package schema

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"gonum.org/v1/gonum/graph/simple"
	"gonum.org/v1/gonum/graph/topo"

	"github.com/recipe-rl/recipe/schema/diagnostic"
	"github.com/recipe-rl/recipe/schema/parse"
)

// order sorts the nodes so that each comes after all that it refers to. Cycles are reported, each with the place of
// every edge, and then broken: the nodes of a cycle are still returned, so that the rest is checked.
func order(nodes []*node, files *parse.Files) (sorted []*node, diags hcl.Diagnostics) {
	position := make(map[*node]int, len(nodes))
	for i, n := range nodes {
		position[n] = i
	}
	waits := make([]int, len(nodes))
	dependents := make([][]int, len(nodes))
	for i, n := range nodes {
		for _, e := range n.edges {
			if j, ok := position[e.to]; ok {
				waits[i]++
				dependents[j] = append(dependents[j], i)
			}
		}
	}
	ready := make([]int, 0, len(nodes))
	for i := range nodes {
		if waits[i] == 0 {
			ready = append(ready, i)
		}
	}
	sorted = make([]*node, 0, len(nodes))
	broken := map[*node]bool{} // in a cycle
	release := func() {
		for len(ready) > 0 {
			i := ready[0]
			ready = ready[1:]
			sorted = append(sorted, nodes[i])
			for _, j := range dependents[i] {
				if waits[j]--; waits[j] == 0 && !broken[nodes[j]] {
					ready = append(ready, j) // the nodes of a cycle are released together, below
				}
			}
		}
	}
	release()
	if len(sorted) == len(nodes) {
		return sorted, nil
	}
	for _, component := range cycles(nodes, position, waits) {
		diags = append(diags, cycle(nodes, position, component, files)...)
		for i := range component {
			broken[nodes[i]] = true
			if waits[i] > 0 {
				waits[i] = 0
				ready = append(ready, i)
			}
		}
	}
	release()
	return sorted, diags
}

// cycles finds the strongly connected components with more than one node, or with an edge to itself, among the nodes
// that still wait.
func cycles(nodes []*node, position map[*node]int, waits []int) []map[int]bool {
	waiting := simple.NewDirectedGraph()
	for i, n := range nodes {
		if waits[i] == 0 {
			continue
		}
		if waiting.Node(int64(i)) == nil {
			waiting.AddNode(simple.Node(i))
		}
		for _, e := range n.edges {
			if j, ok := position[e.to]; ok && waits[j] > 0 && j != i {
				waiting.SetEdge(simple.Edge{F: simple.Node(i), T: simple.Node(j)})
			}
		}
	}
	var found []map[int]bool
	for _, component := range topo.TarjanSCC(waiting) {
		members := map[int]bool{}
		for _, n := range component {
			members[int(n.ID())] = true
		}
		if len(members) > 1 || refersToItself(nodes[component[0].ID()]) {
			found = append(found, members)
		}
	}
	slices.SortFunc(found, func(a, b map[int]bool) int { return cmp.Compare(first(a), first(b)) })
	return found
}

// first is the first member of a component in file order.
func first(component map[int]bool) int { return slices.Min(slices.Collect(maps.Keys(component))) }

func refersToItself(n *node) bool {
	return slices.ContainsFunc(n.edges, func(e edge) bool { return e.to == n })
}

// maxShown is how many edges of a long cycle are shown.
const maxShown = 20

// cycle names a shortest cycle of a component, one line and snippet for each edge.
func cycle(nodes []*node, position map[*node]int, component map[int]bool, files *parse.Files) hcl.Diagnostics {
	path := shortestCycle(nodes, position, component)
	if len(path) == 0 {
		return nil
	}
	names := make([]string, 0, len(path)+1)
	var lines []string
	for i, step := range path {
		if len(path) > maxShown && i >= maxShown/2 && i < len(path)-maxShown/2 {
			if i == maxShown/2 {
				names, lines = append(names, "…"), append(lines, fmt.Sprintf("  … and %d more", len(path)-maxShown/2*2))
			}
			continue
		}
		names = append(names, step.from.qualified())
		lines = append(lines, fmt.Sprintf("  %s needs %s\n    %s: %s", step.from.qualified(), step.to.qualified(),
			diagnostic.At(step.rng), files.Line(step.rng)))
	}
	names = append(names, path[0].from.qualified())
	return hcl.Diagnostics{&hcl.Diagnostic{
		Severity: hcl.DiagError,
		Summary:  "Cycle",
		Detail: fmt.Sprintf(
			"Each of these needs the next one to start first: %s.\n\n%s\n\nRemove one of these references. Weights "+
				"flow back to inference through a sync block, not through a reference.",
			strings.Join(names, " → "), strings.Join(lines, "\n")),
		Subject: &path[0].rng,
	}}
}

type step struct {
	from *node
	edge
}

// shortestCycle searches breadth first from the component's first node in file order.
func shortestCycle(nodes []*node, position map[*node]int, component map[int]bool) []step {
	start := first(component)
	came := map[int]step{}
	queue := []int{start}
	for len(queue) > 0 {
		i := queue[0]
		queue = queue[1:]
		for _, e := range nodes[i].edges {
			j, ok := position[e.to]
			if !ok || !component[j] {
				continue
			}
			s := step{from: nodes[i], edge: e}
			if j == start {
				path := []step{s}
				for at := i; at != start; at = position[came[at].from] {
					path = append(path, came[at])
				}
				slices.Reverse(path)
				return path
			}
			if _, seen := came[j]; !seen {
				came[j] = s
				queue = append(queue, j)
			}
		}
	}
	return nil
}

func (n *node) qualified() string {
	if n.module.path == "" {
		return n.label
	}
	return "module." + n.module.path + "." + n.label
}
