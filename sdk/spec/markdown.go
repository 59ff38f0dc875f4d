package spec

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/zclconf/go-cty/cty"
	ctyjson "github.com/zclconf/go-cty/cty/json"
)

// Markdown renders the schema for a reference page: a table of its attributes, then a section for each nested block.
func Markdown(schema *Schema) string {
	var b strings.Builder
	writeMarkdown(&b, schema, "")
	if len(schema.Metrics) > 0 {
		b.WriteString("Metrics (* stands for any text; in alerts and stop rules):\n\n" +
			"| metric | unit | reported | meaning |\n|---|---|---|---|\n")
		for _, m := range schema.Metrics {
			since := m.Since
			if since == "" {
				since = "from the first report"
			}
			fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", m.Name, cell(m.Unit), cell(since), cell(m.Doc))
		}
		b.WriteString("\n")
	}
	return b.String()
}

func writeMarkdown(b *strings.Builder, s *Schema, prefix string) {
	if s.Doc != "" {
		b.WriteString(s.Doc + "\n\n")
	}
	if len(s.Attributes) > 0 {
		b.WriteString("| attribute | type | default | meaning |\n|---|---|---|---|\n")
		for _, a := range s.Attributes {
			fmt.Fprintf(b, "| `%s` | %s | %s | %s |\n", a.Name, cell(a.typeCell()), cell(a.defaultCell()),
				cell(a.meaning()))
		}
		b.WriteString("\n")
	}
	for _, block := range s.Blocks {
		name := prefix + block.Name
		how := "at most one"
		switch {
		case block.Nesting == List:
			how = "any number"
		case block.Required:
			how = "exactly one"
		}
		fmt.Fprintf(b, "Block `%s { … }` (%s):\n\n", name, how)
		writeMarkdown(b, block.Schema, name+".")
	}
}

// Describe is what an editor shows of an attribute, in Markdown: its type and bounds, its default, its meaning.
func (a *Attribute) Describe() string {
	text := "`" + a.Name + "`: " + a.typeCell()
	switch d := a.defaultCell(); {
	case a.Required || a.Computed:
		text += ", " + d
	case d != "":
		text += ", default " + d
	}
	if m := a.meaning(); m != "" {
		text += "\n\n" + m
	}
	return text
}

func (a *Attribute) typeCell() string {
	text := strings.TrimPrefix(strings.TrimPrefix(a.Friendly(), "a "), "an ")
	if len(a.Enum) > 0 {
		quoted := make([]string, len(a.Enum))
		for i, e := range a.Enum {
			quoted[i] = "`" + strconv.Quote(e) + "`"
		}
		text += ": " + strings.Join(quoted, ", ")
	}
	if a.Pattern != "" {
		text += " matching `" + a.Pattern + "`"
	}
	if r := a.Range(); r != "" {
		text += " " + r
	}
	return text
}

func (a *Attribute) defaultCell() string {
	switch {
	case a.Required:
		return "required"
	case a.Computed:
		return "set by the block"
	case a.Default == cty.NilVal:
		return ""
	}
	raw, err := ctyjson.Marshal(a.Default, a.Default.Type())
	if err != nil {
		return ""
	}
	return "`" + string(raw) + "`"
}

func (a *Attribute) meaning() string {
	parts := []string{}
	if a.Doc != "" {
		parts = append(parts, a.Doc)
	}
	if a.Unit != "" {
		parts = append(parts, "in "+a.Unit)
	}
	if a.Format == FormatFile {
		parts = append(parts, "its content counts")
	}
	if len(a.Environment) > 0 {
		parts = append(parts, "with it the process gets `"+strings.Join(a.Environment, "`, `")+"` of the environment")
	}
	if a.Sensitive {
		parts = append(parts, "sensitive")
	}
	if a.Change != "" && a.Change != ChangeRestart {
		parts = append(parts, "a change means: "+string(a.Change))
	}
	if a.Deprecated != "" {
		parts = append(parts, "**deprecated**: "+a.Deprecated)
	}
	return strings.Join(parts, "; ")
}

func cell(s string) string { return strings.ReplaceAll(strings.ReplaceAll(s, "|", "\\|"), "\n", " ") }

func sorted(s []string) []string { slices.Sort(s); return s }
