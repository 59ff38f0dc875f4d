package live

import (
	"fmt"
	"strings"

	"github.com/charmbracelet/x/ansi"

	"github.com/recipe-rl/recipe/cmd/recipe/view"
	"github.com/recipe-rl/recipe/engine/transcript"
)

// samples is the page of one recorded group: the conversation and its completions.
func (s *screen) samples(width, height int) []string {
	if s.sample == nil {
		if len(s.facts.newest) == 0 {
			return append([]string{"no group is recorded (samples_bytes of the trajectories block); reported samples:"},
				s.reportedSamples()...)
		}
		return []string{"reading…"}
	}
	g := s.sample
	head := fmt.Sprintf("group %d of %s, %s, %s", g.id, view.OneLine(g.block), g.time.Local().Format("15:04:05"), g.state)
	if n := len(g.versions); n > 0 {
		head += fmt.Sprintf(", sampled by version %d", g.versions[0])
		if g.versions[n-1] != g.versions[0] {
			head += fmt.Sprintf("–%d", g.versions[n-1])
		}
	}
	lines := []string{s.style.Cyan(g.environment) + " " + head,
		s.style.Dim(fmt.Sprintf("%d of %d, newest first", s.position+1, s.facts.queue.groups))}
	if g.failed != "" {
		return append(lines, view.OneLine(g.failed))
	}
	all := s.sampleLines(width)
	skip := min(s.scroll, max(0, len(all)-(height-2)))
	return append(lines, all[skip:]...)
}

// sampleLines are all lines of the conversation and the completions of the sample.
func (s *screen) sampleLines(width int) []string {
	g := s.sample
	var lines []string
	for _, m := range g.prompt {
		lines = append(lines, s.messageLines(m, width)...)
	}
	for i, c := range g.completions {
		lines = append(lines, s.style.Dim(fmt.Sprintf("── completion %d of %d, score ", i+1, len(g.completions)))+
			s.style.Bold(view.Number(c.score)))
		for _, m := range c.messages {
			lines = append(lines, s.messageLines(m, width)...)
		}
	}
	return lines
}

// messageLines are the lines of a message, broken to the width of the screen. Its text is printable.
func (s *screen) messageLines(m transcript.Message, width int) []string {
	text := strings.ReplaceAll(m.Text, "\t", "    ")
	return strings.Split(ansi.Wrap(s.style.Cyan(view.OneLine(m.Role))+" "+text, width, " "), "\n")
}

// text joins the texts of messages.
func text(list []transcript.Message) string {
	parts := make([]string, len(list))
	for i, m := range list {
		parts[i] = m.Text
	}
	return strings.Join(parts, " ")
}
