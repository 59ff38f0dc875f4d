package live

import (
	"strconv"
	"strings"
	"time"

	"github.com/charmbracelet/x/ansi"

	"github.com/recipe-rl/recipe/cmd/recipe/view"
	"github.com/recipe-rl/recipe/engine/state"
)

// page is what the largest part of the screen shows.
type page int

const (
	overview page = iota
	blockPage
	samplesPage
	helpPage
)

// screen is everything that a frame shows: a frame depends on nothing else.
type screen struct {
	style         view.Style
	name          string
	run           *run
	reading       bool // what the log came to before the view is not known yet
	facts         facts
	page          page
	selected      string // address of a block
	scroll        int    // lines away from the newest, or from the top of a sample
	sample        *sample
	position      int    // of that sample, 0 the newest
	question      string // a command that waits for y
	message       string // of the last command
	keys          string // what ends the view, for the footer
	stops         bool   // ctrl-c stops the run; else it ends the view
	dashboard     string // address of the page; empty: there is none
	frozen        bool
	width, height int
	now           time.Time
}

// frame lays the screen out as lines that are at most width wide, at most height of them. The terminal acts on no text
// that a recipe, a plugin or a model has put into the events.
func (s *screen) frame() []string {
	width, height := max(s.width, 20), max(s.height, 4)
	var body []string
	top := s.header()
	room := height - len(top) - 1
	switch s.page {
	case helpPage:
		body = s.help()
	case blockPage:
		body = s.block(width, room)
	case samplesPage:
		body = s.samples(width, room)
	default:
		body = s.overview(width, room)
	}
	lines := append(top, body...)
	for len(lines) < height-1 {
		lines = append(lines, "")
	}
	lines = append(lines[:height-1], s.footer())
	for i, l := range lines {
		lines[i] = strings.TrimRight(ansi.Truncate(view.Harmless(l), width, "…"), " ")
	}
	return lines
}

// header says in one line which run it is and how it stands, and why it ended.
func (s *screen) header() []string {
	snap := &s.run.snap
	status := s.facts.standing
	switch {
	case snap.Status == "":
		status = "starting"
	case snap.Status != "running" || status == "" || status == string(state.New):
		status = snap.Status
	}
	line := s.style.Bold(view.OneLine(s.name)) + " " + s.paintStatus(status)(status)
	if !snap.Started.IsZero() {
		end := snap.Ended
		if end.IsZero() {
			end = s.now
		}
		line += " · " + view.Span(max(0, end.Sub(snap.Started)))
	}
	if snap.Version > 0 {
		line += " · version " + strconv.FormatInt(snap.Version, 10)
	}
	if s.dashboard != "" {
		line += " · " + s.dashboard
	}
	if s.frozen {
		line += " · " + s.style.Yellow("display held, space continues")
	}
	lines := []string{line}
	if snap.Message != "" {
		lines = append(lines, s.paintStatus(status)(view.OneLine(snap.Message)))
	}
	return lines
}

// footer is the question, the answer to the last command, or the keys.
func (s *screen) footer() string {
	switch {
	case s.question != "":
		return s.style.Yellow(s.question + " y/n")
	case s.message != "":
		return s.style.Yellow(view.OneLine(s.message))
	}
	return s.style.Dim(s.hints())
}

func (s *screen) hints() string {
	switch s.page {
	case helpPage:
		return "esc back"
	case blockPage:
		return "esc back · ↑↓ scroll · end newest · tab next block · ? help"
	case samplesPage:
		return "esc back · ← older · → newer · ↑↓ scroll · ? help"
	}
	return "? help · " + s.keys + " · ↑↓ select · enter log · s samples"
}

// pane is a titled part of the screen, filled up or cut to height lines.
func (s *screen) pane(title string, width, height int, lines []string) []string {
	if height < 2 {
		return nil
	}
	head := "─ " + title + " "
	out := []string{s.style.Dim(head + strings.Repeat("─", max(0, width-ansi.StringWidth(head))))}
	out = append(out, lines[:min(len(lines), height-1)]...)
	for len(out) < height {
		out = append(out, "")
	}
	return out
}

// beside puts two panes of equal height next to each other.
func beside(left, right []string, width int) []string {
	out := make([]string, len(left))
	for i := range left {
		l := ansi.Truncate(left[i], width, "…")
		out[i] = l + strings.Repeat(" ", max(0, width-ansi.StringWidth(l))+1)
		if i < len(right) {
			out[i] += right[i]
		}
	}
	return out
}

// paintStatus returns how a state of the run is painted.
func (s *screen) paintStatus(status string) func(string) string {
	if status == "running" || status == "starting" {
		return s.style.Cyan
	}
	return s.style.Phase(status)
}
