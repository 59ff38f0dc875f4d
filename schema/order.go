package schema

import (
	"bytes"
	"fmt"
	"slices"
	"strings"

	"github.com/hashicorp/hcl/v2"
)

// order returns the nodes so that each comes after all that it refers to. Cycles are reported, each with the place of
// every edge, and then cut: the nodes of a cycle come out all the same, so that the rest is still checked.
func (p *evaluator) order(nodes []*node) []*node {
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
	out := make([]*node, 0, len(nodes))
	release := func() {
		for len(ready) > 0 {
			i := ready[0]
			ready = ready[1:]
			out = append(out, nodes[i])
			for _, j := range dependents[i] {
				if waits[j]--; waits[j] == 0 && !p.broken[nodes[j]] {
					ready = append(ready, j) // the nodes of a cycle are released together, below
				}
			}
		}
	}
	release()
	if len(out) == len(nodes) {
		return out
	}
	for _, component := range cycles(nodes, position, waits) {
		p.reportCycle(nodes, position, component)
		for i := range component {
			p.broken[nodes[i]] = true
			if waits[i] > 0 {
				waits[i] = 0
				ready = append(ready, i)
			}
		}
	}
	release()
	return out
}

// cycles finds the strongly connected components with more than one node, or with an edge to itself, among the nodes
// that still wait (Tarjan, without recursion: a chain may be as long as the recipe).
func cycles(nodes []*node, position map[*node]int, waits []int) []map[int]bool {
	index := make([]int, len(nodes)) // 0: not seen
	low := make([]int, len(nodes))
	onStack := make([]bool, len(nodes))
	var stack []int
	var found []map[int]bool
	next := 1
	type frame struct{ node, edge int }
	for start := range nodes {
		if waits[start] == 0 || index[start] != 0 {
			continue
		}
		frames := []frame{{node: start}}
		for len(frames) > 0 {
			f := &frames[len(frames)-1]
			v := f.node
			if f.edge == 0 {
				index[v], low[v] = next, next
				next++
				stack, onStack[v] = append(stack, v), true
			}
			descended := false
			for f.edge < len(nodes[v].edges) {
				w, ok := position[nodes[v].edges[f.edge].to]
				f.edge++
				if !ok || waits[w] == 0 {
					continue
				}
				if index[w] == 0 {
					frames = append(frames, frame{node: w})
					descended = true
					break
				}
				if onStack[w] {
					low[v] = min(low[v], index[w])
				}
			}
			if descended {
				continue
			}
			frames = frames[:len(frames)-1]
			if len(frames) > 0 {
				up := frames[len(frames)-1].node
				low[up] = min(low[up], low[v])
			}
			if low[v] == index[v] {
				component := map[int]bool{}
				for {
					w := stack[len(stack)-1]
					stack, onStack[w] = stack[:len(stack)-1], false
					component[w] = true
					if w == v {
						break
					}
				}
				if len(component) > 1 || refersToItself(nodes[v]) {
					found = append(found, component)
				}
			}
		}
	}
	return found
}

func refersToItself(n *node) bool {
	for _, e := range n.edges {
		if e.to == n {
			return true
		}
	}
	return false
}

// maxShown is how many edges of a long cycle are shown.
const maxShown = 20

// reportCycle names a shortest cycle of a component, one line and snippet for each edge.
func (p *evaluator) reportCycle(nodes []*node, position map[*node]int, component map[int]bool) {
	path := shortestCycle(nodes, position, component)
	if len(path) == 0 {
		return
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
			at2(step.rng), p.line(step.rng)))
	}
	names = append(names, path[0].from.qualified())
	p.diags = append(p.diags, &hcl.Diagnostic{
		Severity: hcl.DiagError,
		Summary:  "Cycle",
		Detail: fmt.Sprintf(
			"Each of these needs the next before it can start, and the last needs the first: %s.\n\n%s\n\nRemove one "+
				"of these references. Weights flow back to inference through a sync block, not through a reference.",
			strings.Join(names, " → "), strings.Join(lines, "\n")),
		Subject: &path[0].rng,
	})
}

type step struct {
	from *node
	edge
}

// shortestCycle searches breadth first from the component's first node in file order.
func shortestCycle(nodes []*node, position map[*node]int, component map[int]bool) []step {
	start := -1
	for i := range component {
		if start < 0 || i < start {
			start = i
		}
	}
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

// line is the source line of a range, for the text of another diagnostic.
func (p *evaluator) line(r hcl.Range) string {
	file, ok := p.loader.files[r.Filename]
	if !ok || r.Start.Byte > len(file.Bytes) {
		return ""
	}
	begin := bytes.LastIndexByte(file.Bytes[:r.Start.Byte], '\n') + 1
	line, _, _ := bytes.Cut(file.Bytes[begin:], []byte("\n"))
	return string(bytes.TrimSpace(line[:min(len(line), 200)]))
}
