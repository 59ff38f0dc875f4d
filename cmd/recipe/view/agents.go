package view

import (
	"io"
	"strconv"
)

// Agent is an agent that environment "agent" knows by name, and what this machine has of it.
type Agent struct {
	Name    string `json:"name"`
	Dialect string `json:"dialect"`
	Version string `json:"version,omitempty"` // on this machine; empty: it is not there, or does not tell
	Program string `json:"program,omitempty"` // where it was found
	Warning string `json:"warning,omitempty"` // about the version, or why there is none
	From    string `json:"from"`              // the oldest version that was tried
	Tried   string `json:"tried"`
	Before  string `json:"before"` // the first version that gives a warning for being newer
	Prompt  int    `json:"prompt_tokens"`
	BaseURL string `json:"base_url_variable"`
	Key     string `json:"key_variable"`
	Install string `json:"install"`
}

// Agents prints known agents as a table.
func Agents(w io.Writer, s Style, list []Agent) error {
	var rows [][]Cell
	for _, a := range list {
		here := Cell{Text: "-", Paint: s.Dim}
		if a.Version != "" {
			here = Cell{Text: a.Version, Paint: s.Green}
			if a.Warning != "" {
				here.Paint = s.Yellow
			}
		}
		rows = append(rows, []Cell{{Text: a.Name, Paint: s.Bold}, {Text: a.Dialect}, here, {Text: a.Tried},
			{Text: strconv.Itoa(a.Prompt), Right: true}, {Text: a.Install}})
	}
	return Table(w, s, []string{"AGENT", "API", "HERE", "TRIED", "PROMPT", "INSTALL"}, rows)
}

// AgentsJSON writes {"format_version": "1.0", "agents": […]}.
func AgentsJSON(w io.Writer, list []Agent) error {
	return JSON(w, struct {
		FormatVersion string  `json:"format_version"`
		Agents        []Agent `json:"agents"`
	}{"1.0", list})
}
