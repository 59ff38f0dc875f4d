package diagnostic

import (
	"bufio"
	"fmt"
	"io"
	"strings"
)

// WriteGitHub writes items as workflow commands of GitHub Actions, which shows each at its line of a pull request.
// File translates a path to one relative to the repository.
func WriteGitHub(w io.Writer, items []Item, file func(string) string) error {
	out := bufio.NewWriter(w)
	for _, item := range items {
		command := map[string]string{"warning": "warning", "info": "notice"}[item.Severity]
		if command == "" {
			command = "error"
		}
		var properties []string
		add := func(name string, value any) {
			properties = append(properties, name+"="+escapeProperty(fmt.Sprint(value)))
		}
		if r := item.Range; r != nil {
			add("file", file(r.File))
			add("line", r.Start.Line)
			add("endLine", r.End.Line)
			if r.Start.Line == r.End.Line { // GitHub refuses columns of several lines
				add("col", r.Start.Column)
				add("endColumn", r.End.Column)
			}
		}
		add("title", item.Summary)
		fmt.Fprintf(out, "::%s %s::%s\n", command, strings.Join(properties, ","), escapeData(item.text()))
	}
	return out.Flush()
}

// text is what an item says below its summary.
func (i Item) text() string {
	switch {
	case i.Address == "" && i.Detail == "":
		return i.Summary
	case i.Address == "":
		return i.Detail
	case i.Detail == "":
		return i.Address
	}
	return i.Address + ": " + i.Detail
}

// escapeData and escapeProperty escape as the toolkit of GitHub Actions does.
func escapeData(s string) string {
	return strings.NewReplacer("%", "%25", "\r", "%0D", "\n", "%0A").Replace(s)
}

func escapeProperty(s string) string {
	return strings.NewReplacer(":", "%3A", ",", "%2C").Replace(escapeData(s))
}
