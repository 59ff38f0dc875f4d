package schema

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"strings"
)

// GraphFormats are the formats of WriteGraph.
func GraphFormats() []string { return []string{"dot", "mermaid", "json"} }

// Graph is the JSON form of the start order.
type Graph struct {
	FormatVersion string      `json:"format_version"`
	Recipe        string      `json:"recipe"`
	Blocks        []GraphNode `json:"blocks"`
	Edges         []GraphEdge `json:"edges"`
}

// GraphNode is one block instance.
type GraphNode struct {
	Address string `json:"address"`
	Kind    string `json:"kind"`
	Life    string `json:"life"` // service, job, loop or config
}

// GraphEdge reports that From starts only after To has met the condition.
type GraphEdge struct {
	From      string    `json:"from"`
	To        string    `json:"to"`
	Condition Condition `json:"condition"` // started, healthy or completed
	Attribute string    `json:"attribute"` // that makes the reference, or depends_on
}

// Graph returns the start order: blocks sorted by address, edges by from and to.
func (r *Recipe) Graph() Graph {
	g := Graph{FormatVersion: "1.0", Recipe: r.Name, Blocks: []GraphNode{}, Edges: []GraphEdge{}}
	for _, b := range r.Blocks {
		g.Blocks = append(g.Blocks, GraphNode{Address: b.Addr.String(), Kind: string(b.Addr.Kind),
			Life: string(b.Addr.Kind.Life())})
		for _, n := range b.Needs {
			g.Edges = append(g.Edges, GraphEdge{From: b.Addr.String(), To: n.On.String(), Condition: n.Condition,
				Attribute: n.Attribute})
		}
	}
	return g
}

// WriteGraph writes the start order as dot (Graphviz), mermaid or json. An arrow goes from what needs to what is
// needed.
func (r *Recipe) WriteGraph(w io.Writer, format string) error {
	g := r.Graph()
	out := bufio.NewWriter(w)
	switch format {
	case "dot":
		g.dot(out)
	case "mermaid":
		g.mermaid(out)
	case "json":
		enc := json.NewEncoder(out)
		enc.SetIndent("", "  ")
		enc.SetEscapeHTML(false)
		if err := enc.Encode(g); err != nil {
			return fmt.Errorf("write the graph: %w", err)
		}
	default:
		return fmt.Errorf("write the graph: there is no format %q; expected one of %s", format,
			strings.Join(GraphFormats(), ", "))
	}
	if err := out.Flush(); err != nil {
		return fmt.Errorf("write the graph: %w", err)
	}
	return nil
}

func (g Graph) dot(w *bufio.Writer) {
	shapes := map[string]string{"service": "box", "job": "ellipse", "loop": "diamond", "config": "note"}
	_, _ = fmt.Fprintf(w, "digraph %q {\n  rankdir = \"RL\"\n", g.Recipe) // errors stay in the writer until Flush
	for _, b := range g.Blocks {
		_, _ = fmt.Fprintf(w, "  %s [shape = %s]\n", dotQuote(b.Address), shapes[b.Life])
	}
	for _, e := range g.Edges {
		_, _ = fmt.Fprintf(w, "  %s -> %s [label = %s]\n", dotQuote(e.From), dotQuote(e.To), dotQuote(e.label()))
	}
	_, _ = w.WriteString("}\n")
}

func dotQuote(s string) string {
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`).Replace(s) + `"`
}

func (g Graph) mermaid(w *bufio.Writer) {
	ids := map[string]string{}
	_, _ = w.WriteString("flowchart RL\n")
	open := map[string][2]string{"service": {"[", "]"}, "job": {"([", "])"}, "loop": {"{{", "}}"},
		"config": {"[/", "/]"}}
	for i, b := range g.Blocks {
		ids[b.Address] = fmt.Sprintf("b%d", i)
		_, _ = fmt.Fprintf(w, "  b%d%s%s%s\n", i, open[b.Life][0], mermaidQuote(b.Address), open[b.Life][1])
	}
	for _, e := range g.Edges {
		_, _ = fmt.Fprintf(w, "  %s -->|%s| %s\n", ids[e.From], mermaidQuote(e.label()), ids[e.To])
	}
}

func mermaidQuote(s string) string {
	return `"` + strings.NewReplacer(`"`, "#quot;", "#", "#35;", "\n", " ").Replace(s) + `"`
}

// label names the attribute, and the condition where it is not the usual one.
func (e GraphEdge) label() string {
	if e.Condition == Healthy {
		return e.Attribute
	}
	return e.Attribute + " (" + string(e.Condition) + ")"
}
