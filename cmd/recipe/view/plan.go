package view

import (
	"bufio"
	"fmt"
	"io"
	"sort"
	"strings"

	"github.com/zclconf/go-cty/cty"

	"github.com/recipe-rl/recipe/engine/plan"
	"github.com/recipe-rl/recipe/engine/state"
	"github.com/recipe-rl/recipe/schema/addr"
	"github.com/recipe-rl/recipe/sdk/spec"
)

// sign is how an action is shown: its symbol, its verb for the counts, what it means, and its color.
type sign struct {
	symbol, verb, means string
	paint               func(string) string
}

func (s Style) sign(a plan.Action) sign {
	switch a {
	case plan.Create:
		return sign{"+", "to create", "create", s.Green}
	case plan.Update:
		return sign{"~", "to update", "update while it runs", s.Yellow}
	case plan.Resume:
		return sign{">", "to resume", "resume from its newest checkpoint", s.Cyan}
	case plan.Restart:
		return sign{"^", "to restart", "restart", s.Yellow}
	case plan.Replace:
		return sign{"-/+", "to replace", "replace: its results are archived", s.Red}
	case plan.Stop:
		return sign{"-", "to stop", "stop", s.Red}
	default:
		return sign{"", "unchanged", "nothing", s.Dim}
	}
}

// Plan shows what apply would do, for people.
func Plan(out io.Writer, s Style, p *plan.Plan) error {
	w := bufio.NewWriter(out)
	if p.Changes() {
		legend(w, s, p)
		for _, op := range p.Operations {
			if op.Changes() {
				operation(w, s, op)
			}
		}
		outputs(w, s, p.Outputs)
		plannedEvaluations(w, s, p.Evaluations)
		alerts(w, s, p.Alerts)
		trackers(w, s, p.Tracking)
	}
	findings(w, s, p.Findings)
	if errs := len(p.Errors()); errs > 0 {
		fmt.Fprintf(w, "%s this plan cannot be applied. Without %s: %s\n", s.Red(s.Bold(count(errs, "error")+":")),
			map[bool]string{true: "it", false: "them"}[errs == 1], Counts(s, p))
		return w.Flush()
	}
	fmt.Fprintln(w, Counts(s, p))
	return w.Flush()
}

func legend(w io.Writer, s Style, p *plan.Plan) {
	where := "a new run"
	if p.Status != state.New && p.Status != "" {
		where = "its run is " + string(p.Status)
	}
	fmt.Fprintf(w, "%s (%s)\n\n", s.Bold("Plan for recipe "+p.Recipe), where)
	for _, a := range plan.Actions() {
		if sg := s.sign(a); p.Counts[a] > 0 && a != plan.Nothing {
			fmt.Fprintf(w, "%s %s\n", sg.paint(fmt.Sprintf("%5s", sg.symbol)), sg.means)
		}
	}
	fmt.Fprintln(w)
}

func operation(w io.Writer, s Style, op *plan.Operation) {
	sg := s.sign(op.Action)
	fmt.Fprintf(w, "%s %s", sg.paint(fmt.Sprintf("%5s", sg.symbol)), s.Bold(op.Address.String()))
	var plain []string
	var forced []plan.Reason
	for _, r := range op.Reasons {
		if r.Attribute == "" || (len(r.Before) == 0 && len(r.After) == 0) {
			plain = append(plain, r.Text)
		} else {
			forced = append(forced, r)
		}
	}
	if op.Action == plan.Create {
		plain = nil // that it is new says its sign
	}
	if len(op.Devices) > 0 && op.Action != plan.Update {
		plain = append(plain, "on GPU "+strings.Join(op.Devices, ", "))
	}
	if len(plain) > 0 {
		fmt.Fprintf(w, "  %s", s.Dim("# "+strings.Join(plain, "; ")))
	}
	fmt.Fprintln(w)
	for _, r := range forced {
		changes := r.Parts
		if len(changes) == 0 {
			changes = []plan.Part{{Path: r.Attribute, Before: r.Before, After: r.After}}
		}
		for i, c := range changes {
			if i > 0 {
				fmt.Fprintln(w)
			}
			change(w, s, c)
		}
		switch {
		case r.Change != "" && r.Change != spec.ChangeLive:
			fmt.Fprintf(w, "  %s", s.Dim("# forces "+string(r.Change)))
		case op.Action == plan.Update:
			fmt.Fprintf(w, "  %s", s.Dim("# applied live"))
		}
		fmt.Fprintln(w)
	}
	if op.Action == plan.Create {
		config(w, s, op)
	}
	if op.Job != nil {
		job(w, s, op.Job)
	}
	fmt.Fprintln(w)
}

// job shows what would be submitted to a cluster.
func job(w io.Writer, s Style, j *plan.Job) {
	if j.With != nil {
		fmt.Fprintf(w, "        %s\n", s.Dim("# starts with "+j.With.String()+", in whose request its job is"))
		return
	}
	fmt.Fprintf(w, "        %s\n", s.Dim("# "+j.Executor.String()+" gets ("+j.Language+"):"))
	for line := range strings.Lines(j.Request) {
		fmt.Fprintf(w, "          %s\n", s.Dim(strings.TrimRight(line, "\n")))
	}
	if j.Staged != nil {
		fmt.Fprintf(w, "        %s\n", s.Dim(fmt.Sprintf(
			"# staged to its machine: %d files of the recipe's folder (%.1f MiB), and what the block wrote before",
			j.Staged.Files, float64(j.Staged.Bytes)/(1<<20))))
	}
	if j.Answer != "" {
		fmt.Fprintf(w, "        %s\n", s.Dim("# the cluster would start it at "+OneLine(j.Answer)))
	}
}

// change shows one changed value, or which file has changed.
func change(w io.Writer, s Style, c plan.Part) {
	if c.File != "" {
		fmt.Fprintf(w, "        %s %s: %s has changed", s.Yellow("~"), c.Path, c.File)
		return
	}
	fmt.Fprintf(w, "        %s %s = %s %s %s", s.Yellow("~"), c.Path, brief(Value(c.Before)), s.Yellow("→"),
		brief(Value(c.After)))
}

// config shows the body of a block that will be created: what was chosen, and how much was left at its default.
func config(w io.Writer, s Style, op *plan.Operation) {
	names := make([]string, 0, len(op.Config))
	width, defaults := 0, 0
	for name, raw := range op.Config {
		switch text := string(raw); {
		case name == plan.ContentsName: // digests, of no use before there is something to compare them with
		case text == "null" || text == "[]" || text == "{}":
		case isDefault(op, name):
			defaults++
		default:
			names = append(names, name)
			width = max(width, len(name))
		}
	}
	sort.Strings(names)
	for _, name := range names {
		fmt.Fprintf(w, "        %-*s = %s\n", width, name, brief(Value(op.Config[name])))
	}
	if defaults > 0 {
		fmt.Fprintf(w, "        %s\n", s.Dim(fmt.Sprintf("# and %s", count(defaults, "default"))))
	}
}

// isDefault reports whether an attribute has the value that it has when it is left out.
func isDefault(op *plan.Operation, name string) bool {
	if op.Block == nil || op.Block.Schema == nil || op.Block.Schema.Config == nil {
		return false
	}
	for _, a := range op.Block.Schema.Config.Attributes {
		if a.Name == name && a.Default != cty.NilVal {
			return Value(op.Config[name]) == Expression(a.Default)
		}
	}
	return false
}

func outputs(w io.Writer, s Style, outs []plan.Output) {
	if len(outs) == 0 {
		return
	}
	fmt.Fprintln(w, s.Bold("Outputs:"))
	for _, o := range outs {
		text := "(known after apply)"
		switch {
		case o.Sensitive:
			text = "(sensitive)"
		case o.Known:
			text = brief(Value(o.Value))
		}
		fmt.Fprintf(w, "  %s = %s\n", o.Name, text)
	}
	fmt.Fprintln(w)
}

func alerts(w io.Writer, s Style, all []plan.Alert) {
	if len(all) == 0 {
		return
	}
	fmt.Fprintln(w, s.Bold("Alerts:"))
	for _, a := range all {
		fmt.Fprintf(w, "  %s: when %s → %s\n", a.Name, a.When, OneLine(strings.Join(a.Tells, ", ")))
	}
	fmt.Fprintln(w)
}

func trackers(w io.Writer, s Style, all []plan.Tracker) {
	if len(all) == 0 {
		return
	}
	fmt.Fprintln(w, s.Bold("Tracking:"))
	for _, t := range all {
		fmt.Fprintf(w, "  %s %s\n", t.Tracker, t.Name)
		if t.Missing != "" {
			fmt.Fprintf(w, "    %s %s\n", s.Yellow("Warning:"), OneLine(t.Missing))
		}
	}
	fmt.Fprintln(w)
}

func findings(w io.Writer, s Style, all []plan.Finding) {
	for _, f := range all {
		head := s.Cyan("Note")
		switch f.Severity {
		case "error":
			head = s.Red(s.Bold("Error"))
		case "warning":
			head = s.Yellow("Warning")
		}
		// A cluster's answer may have several lines, and none may look like a line of the plan.
		summary := strings.ReplaceAll(strings.TrimSpace(f.Summary), "\n", "\n  ")
		fmt.Fprintf(w, "%s: %s: %s%s\n", head, f.Subject(), summary, place(s, f))
		for _, line := range strings.Split(strings.TrimSpace(f.Detail), "\n") {
			if line != "" {
				fmt.Fprintf(w, "  %s\n", line)
			}
		}
		fmt.Fprintln(w)
	}
}

// place is where a finding is that someone should change something about, as (FILE:LINE).
func place(s Style, f plan.Finding) string {
	if f.Range == nil || f.Severity == "info" {
		return ""
	}
	return s.Dim(fmt.Sprintf(" (%s:%d)", f.Range.File, f.Range.Start.Line))
}

// Counts is the closing line of a plan.
func Counts(s Style, p *plan.Plan) string {
	if !p.Changes() {
		alive := 0
		for _, op := range p.Operations {
			if op.Alive {
				alive++
			}
		}
		what := "nothing to do"
		if alive > 0 {
			what = fmt.Sprintf("%d running", alive)
		}
		return s.Green("No changes.") + fmt.Sprintf(" %s is as the recipe declares it: %s, %s.", p.Recipe,
			count(len(p.Operations), "block"), what)
	}
	var parts []string
	moved := 0
	for _, op := range p.Operations {
		if op.MovedFrom != (addr.Block{}) {
			moved++
		}
	}
	if moved > 0 {
		parts = append(parts, s.Cyan(fmt.Sprintf("%d to move", moved)))
	}
	for _, a := range plan.Actions() {
		if n := p.Counts[a]; n > 0 {
			sg := s.sign(a)
			parts = append(parts, sg.paint(fmt.Sprintf("%d %s", n, sg.verb)))
		}
	}
	return s.Bold("Plan:") + " " + strings.Join(parts, ", ") + "."
}
