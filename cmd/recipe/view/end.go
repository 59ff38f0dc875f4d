package view

import (
	"encoding/json"
	"fmt"
	"io"
	"sort"
	"strings"

	"github.com/zclconf/go-cty/cty"

	"github.com/recipe-rl/recipe/schema"
)

// Draining answers the first Ctrl-C.
func Draining(w io.Writer, s Style) {
	fmt.Fprintln(w, s.Yellow("\nStopping: jobs write a checkpoint and end, then services stop. Ctrl-C again kills."))
}

// Killing answers the second.
func Killing(w io.Writer, s Style) {
	fmt.Fprintln(w, s.Red("\nKilling every process of the run."))
}

// Stopped closes an apply that was interrupted.
func Stopped(w io.Writer, s Style, file string) error {
	_, err := fmt.Fprintf(w, "\n%s Go on with: recipe apply %s\n", s.Bold("The run is stopped."), file)
	return err
}

// Values shows the outputs that an apply ends with.
func Values(w io.Writer, s Style, outputs map[string]any) error {
	if len(outputs) == 0 {
		return nil
	}
	names := make([]string, 0, len(outputs))
	for name := range outputs {
		names = append(names, name)
	}
	sort.Strings(names)
	lines := []string{"", s.Bold("Outputs:")}
	for _, name := range names {
		text := fmt.Sprint(outputs[name])
		if raw, err := json.Marshal(outputs[name]); err == nil {
			text = Value(raw)
		}
		lines = append(lines, "  "+name+" = "+text)
	}
	_, err := io.WriteString(w, strings.Join(lines, "\n")+"\n")
	return err
}

// Next says what to try after a run, from what the recipe declares.
func Next(w io.Writer, s Style, r *schema.Recipe) error {
	var rows [][]Cell
	add := func(command, what string) {
		rows = append(rows, []Cell{{Text: "  " + command}, {Text: what, Paint: s.Dim}})
	}
	for _, v := range r.Variables {
		if v.Sensitive || v.Type != cty.Number || !v.Value.IsKnown() || v.Value.IsNull() {
			continue
		}
		add(fmt.Sprintf("recipe plan --var %s=%s %s", v.Name, Expression(v.Value.Multiply(cty.NumberIntVal(2))), r.File), "what twice as much would change")
		break
	}
	add("recipe logs -r "+r.File, "everything that was said")
	add("recipe show -r "+r.File, "what is recorded")
	add("recipe graph "+r.File, "how the blocks hang together")
	_, err := io.WriteString(w, "\n"+s.Bold("What to try next:")+"\n"+strings.Join(Rows(rows, 0), "\n")+"\n")
	return err
}

// LastLines sets off the last lines of a log.
func LastLines(lines []string) string {
	if len(lines) == 0 {
		return ""
	}
	out := make([]string, len(lines))
	for i, l := range lines {
		out[i] = "  │ " + oneLine(l)
	}
	return "Its last words:\n" + strings.Join(out, "\n")
}
