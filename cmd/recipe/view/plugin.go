package view

import (
	"io"

	"github.com/recipe-rl/recipe/schema"
)

// Plugins lists plugins for people.
func Plugins(w io.Writer, s Style, plugins []*schema.PluginSchema) error {
	var rows [][]Cell
	for _, p := range plugins {
		rows = append(rows, []Cell{{Text: string(p.Kind)}, {Text: p.Name, Paint: s.Cyan}, {Text: p.Version},
			{Text: p.Summary}})
	}
	return Table(w, s, []string{"KIND", "NAME", "VERSION", ""}, rows)
}

// PluginsJSON lists plugins for machines.
func PluginsJSON(w io.Writer, plugins []*schema.PluginSchema) error {
	type plugin struct {
		Kind    string `json:"kind"`
		Name    string `json:"name"`
		Version string `json:"version"`
		Summary string `json:"summary"`
		Digest  string `json:"schema_digest"`
	}
	out := []plugin{}
	for _, p := range plugins {
		out = append(out, plugin{string(p.Kind), p.Name, p.Version, p.Summary, p.Digest})
	}
	return JSON(w, struct {
		FormatVersion string   `json:"format_version"`
		Plugins       []plugin `json:"plugins"`
	}{"1.0", out})
}
