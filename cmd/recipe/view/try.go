package view

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/mattn/go-runewidth"
	"github.com/mitchellh/go-wordwrap"

	"github.com/recipe-rl/recipe/engine/printable"
	"github.com/recipe-rl/recipe/sdk/trajectory"
)

// Tried is what an environment did with a few prompts.
type Tried struct {
	Environment string       `json:"environment"`
	Policy      string       `json:"policy"`
	Groups      []TriedGroup `json:"groups"`
}

// TriedGroup is one prompt with its completions.
type TriedGroup struct {
	Completions []TriedCompletion `json:"completions"`
}

// TriedCompletion is one scored sequence: a rollout, or a part of one.
type TriedCompletion struct {
	Score        *float64       `json:"score"` // nil: it has none
	Advantage    float64        `json:"advantage"`
	PromptTokens int            `json:"prompt_tokens"` // tokens that are not trained on
	Tokens       int            `json:"tokens"`        // tokens that are
	Messages     []TriedMessage `json:"messages"`
	// Part: it is a further part of the rollout of the completion before it, with the same score.
	Part bool `json:"part,omitempty"`
	// Masked explains why the model's tokens of these spans are not trained on.
	Masked []trajectory.MaskedSpan `json:"masked,omitempty"`
	// Failed is why it has no score.
	Failed string `json:"failed,omitempty"`
	// Metrics are what the environment gives beside the score, by name.
	Metrics map[string]float64 `json:"metrics,omitempty"`
}

// TriedMessage is one turn of a conversation.
type TriedMessage struct {
	Role    string `json:"role"`
	Content string `json:"content"`
}

// prompt is what all completions of the group begin with. One that failed may have left less than that.
func (g TriedGroup) prompt() []TriedMessage {
	whole := slices.DeleteFunc(slices.Clone(g.Completions), func(c TriedCompletion) bool { return c.Failed != "" })
	if len(whole) == 0 {
		return nil
	}
	first := whole[0].Messages
	shared := len(first)
	for _, c := range whole {
		shared = min(shared, max(0, len(c.Messages)-1)) // the last message is the model's
		for i := range shared {
			if c.Messages[i] != first[i] {
				shared = i
				break
			}
		}
	}
	return first[:shared]
}

// rollouts counts the group's rollouts.
func (g TriedGroup) rollouts() int {
	n := 0
	for _, c := range g.Completions {
		if !c.Part {
			n++
		}
	}
	return n
}

// equal reports whether nothing can be learned from the group: none of its scores differs from another.
func (g TriedGroup) equal() bool {
	var first *float64
	return !slices.ContainsFunc(g.Completions, func(c TriedCompletion) bool {
		if first = cmp.Or(first, c.Score); c.Score == nil {
			return false
		}
		a, b := *c.Score, *first
		return math.Abs(a-b) > max(1e-12, 1e-9*max(math.Abs(a), math.Abs(b))) // less is rounding
	})
}

// Show writes prompts and completions for people.
func (t Tried) Show(w io.Writer, s Style) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%s, answered by %s\n", s.Bold(t.Environment), OneLine(t.Policy))
	sum, n, failed, flat := 0.0, 0, 0, 0
	for i, g := range t.Groups {
		fmt.Fprintf(&b, "\n%s\n", s.Bold(fmt.Sprintf("Prompt %d", i+1)))
		prompt := g.prompt()
		for _, m := range prompt {
			b.WriteString(turn(s, m.Role, m.Content))
		}
		fmt.Fprintf(&b, "\n  %s\n", s.Dim("  score  advantage  completion"))
		times := map[string]int{}
		for _, c := range g.Completions {
			times[c.row(s, len(prompt), 1)]++
			switch {
			case c.Part:
			case c.Score == nil:
				failed++
			default:
				sum, n = sum+*c.Score, n+1
			}
		}
		parts := g.rollouts() < len(g.Completions)
		for _, c := range g.Completions { // equal ones once, where the first is
			if row := c.row(s, len(prompt), 1); parts {
				b.WriteString(row)
			} else if times[row] > 0 {
				b.WriteString(c.row(s, len(prompt), times[row]))
				times[row] = 0
			}
		}
		if g.equal() && g.rollouts() > 1 {
			flat++
		}
	}
	without, mean := "", "no score"
	if failed > 0 {
		without = fmt.Sprintf(", %d of them without a score", failed)
	}
	if n > 0 {
		mean = "mean score " + figure(sum/float64(n))
	}
	fmt.Fprintf(&b, "\n%s, %s%s, %s\n", count(len(t.Groups), "prompt"), count(n+failed, "completion"), without, mean)
	if flat > 0 {
		text := fmt.Sprintf("In %d of %d groups all scores are equal: nothing can be learned from them. Training goes on "+
			"with the others. When nearly all are so with more prompts (-n 20), too, the tasks are too easy or too hard for "+
			"this policy, or scored too coarsely.", flat, len(t.Groups))
		fmt.Fprintf(&b, "%s\n", s.Yellow(wordwrap.WrapString(text, uint(max(40, s.Width)))))
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// row is a completion that came so many times: score, advantage and the text after the prompt.
func (c TriedCompletion) row(s Style, prompt, times int) string {
	paint := func(text string) string { return text }
	switch {
	case c.Advantage > 0.005:
		paint = s.Green
	case c.Advantage < -0.005:
		paint = s.Red
	}
	rest := c.Messages[min(prompt, len(c.Messages)):]
	var text string
	switch {
	case len(rest) == 1:
		text = rest[0].Content
	case len(rest) == 0:
		text = "(no text)"
		if c.Failed == "" {
			text = fmt.Sprintf("(%d tokens; the environment posts no text)", c.Tokens)
		}
	default:
		var turns []string
		for _, m := range rest {
			turns = append(turns, m.Role+": "+strings.TrimRight(m.Content, "\n"))
		}
		text = strings.Join(turns, "\n")
	}
	// Score and advantage take 20 columns.
	lines := fold(strings.TrimRight(text, "\n"), s.Width-23) // a stop text is often the end of a line
	advantage := c.Advantage
	if math.Abs(advantage) < 0.005 {
		advantage = 0 // no -0.00
	}
	score, change := "failed", ""
	switch {
	case c.Part:
		score = "part"
	case c.Score != nil:
		score, change = figure(*c.Score), fmt.Sprintf("%+.2f", advantage)
	}
	out := fmt.Sprintf("  %s  %s  %s\n", pad(score, 7), paint(pad(change, 9)), lines[0])
	for _, line := range lines[1:] {
		out += strings.Repeat(" ", 22) + line + "\n"
	}
	if times > 1 {
		out = strings.TrimSuffix(out, "\n") + s.Dim(fmt.Sprintf("  ×%d", times)) + "\n"
	}
	if c.Failed != "" {
		for _, line := range fold(c.Failed, s.Width-23) {
			out += strings.Repeat(" ", 22) + s.Red(line) + "\n"
		}
	}
	for _, m := range c.Masked {
		out += strings.Repeat(" ", 22) + s.Dim(fmt.Sprintf("%s not trained: %s", count(m.End-m.Start, "token"),
			OneLine(m.Why))) + "\n"
	}
	if len(c.Metrics) > 0 && !c.onlyScore() {
		out += strings.Repeat(" ", 22) + s.Dim(c.metrics()) + "\n"
	}
	return out
}

// onlyScore reports whether the numbers beside the score repeat it: it is the reward of one function.
func (c TriedCompletion) onlyScore() bool {
	for name, value := range c.Metrics {
		if !strings.HasPrefix(name, "reward/") || c.Score == nil || value != *c.Score {
			return false
		}
	}
	return len(c.Metrics) == 1
}

// metrics are the numbers beside the score, in one line.
func (c TriedCompletion) metrics() string {
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(c.Metrics)) {
		parts = append(parts, name+" "+figure(c.Metrics[name]))
	}
	return oneLine(strings.Join(parts, ", "))
}

func pad(text string, width int) string {
	return strings.Repeat(" ", max(0, width-runewidth.StringWidth(text))) + text
}

func figure(v float64) string {
	return strings.TrimSuffix(strings.TrimRight(fmt.Sprintf("%.3f", v), "0"), ".")
}

// maxLines are as many lines as one message gets.
const maxLines = 12

// fold breaks a text into lines of at most width columns, shows control characters as escapes, and cuts what is long.
// The empty text is shown as such.
func fold(text string, width int) []string {
	if strings.TrimSpace(text) == "" {
		return []string{fmt.Sprintf("%q", text)}
	}
	var lines []string
	for _, line := range strings.Split(strings.TrimRight(text, "\n"), "\n") {
		for _, part := range strings.Split(wordwrap.WrapString(printable.Text(line), uint(max(20, width))), "\n") {
			lines = append(lines, chunks(part, max(20, width))...)
		}
	}
	if len(lines) > maxLines {
		more := len(lines) - maxLines + 1
		lines = append(lines[:maxLines-1], fmt.Sprintf("… %d more lines; --json has all", more))
	}
	return lines
}

// chunks breaks a word that is longer than a line.
func chunks(line string, width int) []string {
	var out []string
	for runewidth.StringWidth(line) > width {
		head := runewidth.Truncate(line, width, "")
		if head == "" {
			break
		}
		out, line = append(out, head), line[len(head):]
	}
	return append(out, line)
}

// turn is a message of the prompt.
func turn(s Style, role, content string) string {
	lines := fold(content, s.Width-13)
	out := fmt.Sprintf("  %s %s\n", s.Cyan(fmt.Sprintf("%-9s", oneLine(role))), lines[0])
	for _, line := range lines[1:] {
		out += strings.Repeat(" ", 12) + line + "\n"
	}
	return out
}
