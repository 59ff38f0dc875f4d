package view

import (
	"fmt"
	"io"
	"strings"

	"github.com/zclconf/go-cty/cty"

	"github.com/recipe-rl/recipe/engine/plan"
	"github.com/recipe-rl/recipe/engine/state"
	"github.com/recipe-rl/recipe/schema"
)

// Stopped ends an interrupted apply with the command that continues the run. changed: by another apply since, whose
// arguments that command may lack.
func Stopped(w io.Writer, s Style, command string, changed bool) error {
	then := "Continue with: " + command
	if changed {
		then = "Another apply has changed it since: continue with the command of that one. Without its arguments: " + command
	}
	_, err := fmt.Fprintf(w, "\n%s %s\n", s.Bold("The run is stopped."), then)
	return err
}

// Next describes what to try after a run, from what the recipe declares.
func Next(w io.Writer, s Style, r *schema.Recipe) error {
	var rows [][]Cell
	add := func(command, what string) {
		rows = append(rows, []Cell{{Text: "  " + command}, {Text: what, Paint: s.Dim}})
	}
	for _, v := range r.Variables {
		if v.Sensitive || v.Type != cty.Number || !v.Value.IsKnown() || v.Value.IsNull() ||
			v.Value.RawEquals(cty.Zero) { // twice as much is the same
			continue
		}
		add(fmt.Sprintf("recipe plan --var %s=%s %s", v.Name, Expression(v.Value.Multiply(cty.NumberIntVal(2))),
			r.File), "plan the same run with twice as many")
		break
	}
	add("recipe ui -r "+r.File, "its curves and samples, in a browser")
	add("recipe logs -r "+r.File, "the log")
	add("recipe show -r "+r.File, "the record of the run")
	add("recipe graph "+r.File, "the start order of the blocks")
	_, err := io.WriteString(w, "\n"+s.Bold("What to try next:")+"\n"+strings.Join(Rows(rows, 0), "\n")+"\n")
	return err
}

// NothingTrained reports that the result of a finished run is an old one, and how to make a new one.
func NothingTrained(w io.Writer, s Style, r *schema.Recipe, p *plan.Plan) error {
	over := p.Over()
	if over != "" {
		over += "\n"
	}
	_, err := fmt.Fprintf(w, "\n%s\n%s%s\n", s.Bold("The run is finished: nothing was trained."), over, plan.Anew(r))
	return err
}

// Behind warns of trackers that received only a part of the run.
func Behind(w io.Writer, s Style, trackers []string) error {
	for _, t := range trackers {
		_, err := fmt.Fprintf(w, "\n%s %s\n  Not all of the run was passed on; the next recipe apply passes the rest on.\n",
			s.Yellow("Warning:"), OneLine(t))
		if err != nil {
			return err
		}
	}
	return nil
}

// LastLines sets off the last lines of a log.
func LastLines(lines []string) string {
	if len(lines) == 0 {
		return ""
	}
	out := make([]string, len(lines))
	for i, l := range lines {
		out[i] = "  │ " + OneLine(l)
	}
	return "Last lines of its output:\n" + strings.Join(out, "\n")
}

// Destroying describes what a destroy is about to remove.
func Destroying(w io.Writer, s Style, dir string, run *state.Run, checkpoints bool) error {
	kept := "its checkpoints are kept"
	if checkpoints {
		kept = "its checkpoints are removed too"
	}
	_, err := fmt.Fprintf(w, "%s of %s (%s): every process will be stopped and %s removed; %s.\n",
		s.Bold("Run "+run.ID), run.File, run.Status, dir, kept)
	return err
}
