package view

import (
	"bufio"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/recipe-rl/recipe/engine/lineage"
	"github.com/recipe-rl/recipe/schema/addr"
)

// Lineage shows what a run or a checkpoint comes from.
func Lineage(w io.Writer, s Style, l *lineage.Lineage) error {
	pairs := [][2]string{}
	if c := l.Checkpoint; c != nil {
		pairs = append(pairs, [2]string{"checkpoint", c.Path},
			[2]string{"of", fmt.Sprintf("%s, step %d, policy version %d", c.Address, c.Step, c.Version)})
	}
	if p := l.Parent; p != nil {
		pairs = append(pairs, [2]string{"fork of",
			fmt.Sprintf("run %s (%s), %s at step %d", p.Run, p.Recipe, p.Address, p.Step)})
	}
	lock := ""
	if l.Lock != nil {
		lock = l.Lock.Path + " " + l.Lock.Digest
	}
	machine := fmt.Sprintf("%s, %s/%s, %d CPUs", l.Machine.Host, l.Machine.OS, l.Machine.Arch, l.Machine.CPUs)
	if len(l.Machine.GPUs) > 0 {
		machine += ", " + strings.Join(l.Machine.GPUs, ", ") + ", driver " + l.Machine.Driver
	}
	var variables []string
	for _, name := range slices.Sorted(maps.Keys(l.Variables)) {
		value := string(l.Variables[name].Value)
		if l.Variables[name].Secret {
			value = "(sensitive)"
		}
		variables = append(variables, name+" = "+value)
	}
	pairs = append(pairs, [][2]string{{"run", l.Run.ID}, {"applied", moment(l.Run.Applied)}, {"recipe", l.Run.File},
		{"variables", strings.Join(variables, ", ")}, {"digest", l.Run.Digest}, {"program", l.Program}, {"lock", lock},
		{"machine", machine}}...)
	if err := listing(w, s, pairs); err != nil {
		return err
	}
	for _, a := range slices.SortedFunc(maps.Keys(l.Blocks), addr.Compare) {
		b := l.Blocks[a]
		if _, err := fmt.Fprintf(w, "\n%s\n", s.Bold(a.String())); err != nil {
			return err
		}
		model := ""
		if b.Model != nil {
			model = strings.TrimSuffix(b.Model.Name+" "+b.Model.Revision, " ")
		}
		inner := [][2]string{{"  plugin", strings.TrimSpace(b.Plugin + " " + b.Version)}, {"  program", b.Binary},
			{"  model", model}, {"  seed", string(b.Config["seed"])}, {"  devices", strings.Join(b.Devices, ", ")}}
		for _, d := range b.Datasets {
			inner = append(inner, [2]string{"  " + d.Name, d.Revision})
		}
		if p := b.Python; p != nil {
			inner = append(inner, [2]string{"  Python", fmt.Sprintf("%s, %d packages", p.Version, len(p.Packages))})
		}
		for _, f := range b.Files {
			inner = append(inner, [2]string{"  " + f.Path, f.Digest})
		}
		if err := listing(w, s, inner); err != nil {
			return err
		}
	}
	return nil
}

// Comparison shows what differs between two runs, which have the names given.
func Comparison(out io.Writer, s Style, names []string, c *lineage.Comparison) error {
	w := bufio.NewWriter(out)
	fmt.Fprintf(w, "%s %s (run %s)\n", s.Red("-"), names[0], c.Before.ID)
	fmt.Fprintf(w, "%s %s (run %s)\n", s.Green("+"), names[1], c.After.ID)
	if c.Same() {
		fmt.Fprint(w, "\nRecipe, plugins, models, files, packages and machine are the same.\n")
	}
	for _, section := range []struct {
		title string
		list  []lineage.Difference
	}{{"Recipe", c.Recipe}, {"Plugins", c.Plugins}, {"Models and files", c.Inputs}, {"Python packages", c.Packages},
		{"Machine", c.Machine}, {"Metrics, last values", c.Metrics}} {
		if len(section.list) == 0 {
			continue
		}
		fmt.Fprintf(w, "\n%s\n", s.Bold(section.title))
		for _, d := range section.list {
			fmt.Fprintf(w, "  %s  %s → %s\n", d.What, s.Red(orNone(d.Before)), s.Green(orNone(d.After)))
		}
	}
	return w.Flush()
}

func orNone(text string) string {
	if text == "" {
		return "(none)"
	}
	return brief(text)
}
