package live

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/charmbracelet/x/ansi"

	"github.com/recipe-rl/recipe/cmd/recipe/view"
	"github.com/recipe-rl/recipe/engine/event"
	"github.com/recipe-rl/recipe/sdk"
)

// overview is the page of the whole run. What a low screen has no room for is left out from below.
func (s *screen) overview(width, height int) []string {
	lines := s.progress(width)
	table, complete := s.table(width, max(3, height/2-len(lines)))
	lines = append(lines, table...)
	if b := s.run.snap.Blocks[s.selected]; b != nil && !complete && s.does(b) != "" {
		lines = append(lines, s.style.Dim("▸ "+s.does(b)))
	}
	lines = append(lines, s.waits(width)...)
	lines = append(lines, s.outputs(width)...)
	if curves := s.curves(width); len(lines)+len(curves)+3 < height {
		lines = append(lines, curves...)
	}
	figures := s.figures(width) // at most a quarter of what is left
	lines = append(lines, figures[:min(len(figures), max(0, height-len(lines)-1)/4)]...)
	room := height - len(lines)
	if width >= 120 {
		half := width / 2
		return append(lines, beside(s.pane("log", half-1, room, s.newestLines(half-1, room-1)),
			s.pane("samples", width-half, room, s.newestSamples(width-half, room-1)), half-1)...)
	}
	forSamples := min(room/3, 6)
	lines = append(lines, s.pane("log", width, room-forSamples, s.newestLines(width, room-forSamples-1))...)
	return append(lines, s.pane("samples", width, forSamples, s.newestSamples(width, forSamples-1))...)
}

// progress has a bar for each block that knows its total, with the time that is left.
func (s *screen) progress(width int) []string {
	var lines []string
	for _, a := range s.run.addresses() {
		b := s.run.snap.Blocks[a]
		if b.Total <= 0 || b.Step >= b.Total && starts(b.Phase) {
			continue
		}
		label := fmt.Sprintf(" %d/%d %s", b.Step, b.Total, view.OneLine(b.Unit))
		if left, ok := s.run.snap.TimeLeft(b, s.now); ok {
			label += ", " + view.Span(left) + " left"
		}
		long := min(40, width-ansi.StringWidth(label)-2)
		if long < 4 {
			lines = append(lines, strings.TrimSpace(label))
			continue
		}
		done := min(int(float64(long)*float64(b.Step)/float64(b.Total)), long)
		lines = append(lines, s.style.Green(strings.Repeat("█", done))+s.style.Dim(strings.Repeat("░", long-done))+label)
		if len(lines) == 3 {
			break
		}
	}
	return lines
}

// starts reports whether a block in a phase still starts. What it counts then is a part of that.
func starts(phase string) bool {
	return slices.Contains([]sdk.Phase{sdk.Preparing, sdk.Starting, sdk.Loading}, sdk.Phase(phase))
}

// waits are the stalls, why the engine is silent, and the blocks that have failed, with what to do.
func (s *screen) waits(width int) []string {
	lines := view.StallLines(s.style, &s.run.snap, width, s.now)
	lines = lines[:min(len(lines), 3)]
	for _, e := range s.run.snap.Stalls {
		if len(s.run.snap.Stalls) == 1 && e.Remedy != "" {
			lines = append(lines, "  → "+view.OneLine(e.Remedy))
		}
	}
	if s.facts.silent != "" {
		lines = append(lines, s.style.Yellow("the engine does not answer: "+view.OneLine(s.facts.silent)))
	}
	for _, a := range s.run.addresses() {
		if b := s.run.snap.Blocks[a]; b.Phase == string(sdk.Failed) {
			lines = append(lines, s.style.Red(view.OneLine(a+": "+b.Message)))
			if b.Remedy != "" {
				lines = append(lines, "  → "+view.OneLine(b.Remedy))
			}
		}
	}
	return lines
}

// figures are the numbers of the run that have no curve, as many in a line as there is room for.
func (s *screen) figures(width int) []string {
	var parts []string
	if q := s.facts.queue; q.recorded {
		text := fmt.Sprintf("queue %d of %d groups", q.waiting, q.groups)
		if q.dropped > 0 {
			text += fmt.Sprintf(", %d dropped", q.dropped)
		}
		if q.lost > 0 {
			text += fmt.Sprintf(", %d not recorded", q.lost)
		}
		parts = append(parts, text)
	}
	for _, name := range []string{"memory/device_now", "memory/process_peak"} {
		if v, ok := s.sum(name); ok {
			parts = append(parts, name+" "+gib(v))
		}
	}
	if m := s.facts.memory; m.total > 0 {
		parts = append(parts, fmt.Sprintf("memory of this machine %s of %s", gib(float64(m.used)), gib(float64(m.total))))
	}
	return joined(parts, width)
}

// outputs are those of the recipe that are known, such as the address of a server.
func (s *screen) outputs(width int) []string {
	const most = 3
	var parts []string
	for _, e := range view.KnownOutputs(&s.run.snap) {
		parts = append(parts, view.Output(e))
	}
	lines := joined(parts, width)
	if len(lines) > most {
		lines = append(lines[:most-1], s.style.Dim("more outputs: recipe output"))
	}
	return lines
}

// joined writes parts side by side, as many in a line as there is room for.
func joined(parts []string, width int) []string {
	var lines []string
	for _, p := range parts {
		last := len(lines) - 1
		if last >= 0 && ansi.StringWidth(lines[last]+" · "+p) <= width {
			lines[last] += " · " + p
		} else {
			lines = append(lines, p)
		}
	}
	return lines
}

// sum adds a metric of all blocks.
func (s *screen) sum(name string) (total float64, found bool) {
	for _, b := range s.run.snap.Blocks {
		if v, ok := b.Fresh()[name]; ok {
			total, found = total+v, true
		}
	}
	return total, found
}

func gib(bytes float64) string { return fmt.Sprintf("%.1f GiB", bytes/(1<<30)) }

// newestLines are the newest lines of the log of all blocks. On a narrow screen, which time and address nearly fill,
// they are broken, elsewhere cut.
func (s *screen) newestLines(width, n int) []string {
	if width < narrow {
		return s.log("", width, n)
	}
	var out []string
	for _, e := range s.run.lines[""].last(max(n, 0), 0) {
		out = append(out, ansi.Truncate(s.logLine(e), width, "…"))
	}
	return out
}

const narrow = 55 // columns

func (s *screen) logLine(e event.Event) string { return view.Line(s.style, e) }

// newestSamples has a line for each of the newest groups.
func (s *screen) newestSamples(width, n int) []string {
	var out []string
	for i := range s.facts.newest {
		out = append(out, s.groupLine(&s.facts.newest[i]))
	}
	if len(out) == 0 {
		out = s.reportedSamples()
	}
	out = out[:max(0, min(n, len(out)))]
	for i := range out {
		out[i] = ansi.Truncate(out[i], width, "…")
	}
	return out
}

// groupLine is a group in one line: its mean score, its prompt, the best completion, and the worst if its score is
// lower.
func (s *screen) groupLine(g *sample) string {
	if g.failed != "" || len(g.completions) == 0 {
		return s.style.Dim(view.OneLine(g.failed))
	}
	best, worst := g.completions[0], g.completions[len(g.completions)-1]
	line := fmt.Sprintf("%s %s %s %s %s", s.style.Bold(view.Number(g.mean())), s.style.Cyan(g.environment),
		view.OneLine(text(g.prompt)), s.style.Dim("→"), s.style.Green(view.OneLine(text(best.messages))))
	if worst.score < best.score {
		line += s.style.Dim(" | " + view.OneLine(text(worst.messages)))
	}
	return line
}

// reportedSamples are those that environments reported as events, for a run without a record of its groups.
func (s *screen) reportedSamples() []string {
	var out []string
	for _, name := range slices.Sorted(maps.Keys(s.run.snap.Samples)) {
		out = append(out, view.Line(s.style, s.run.snap.Samples[name].Last))
	}
	return out
}
