package tools

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/recipe-rl/recipe/internal/bounded"
	"github.com/recipe-rl/recipe/plugins/trajectories"
	"github.com/recipe-rl/recipe/sdk/trajectory"
)

// TailOptions are the flags of `recipe trajectories tail`.
type TailOptions struct {
	Target
	Env   string // only this environment; empty for all
	Count int    // end after so many groups; 0: until interrupted
	JSON  bool   // the arrivals as they come, one object a line
	Width int    // of a line for people; 0 means 120
}

// Tail shows groups as they arrive: when, from which environment, how scored, which policy version, and the beginning
// of the prompt and of the best completion.
func Tail(ctx context.Context, o TailOptions, out io.Writer) error {
	s, err := o.open(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = s.close() }()
	body, err := s.send(ctx, http.MethodGet, "/tail", nil)
	if err != nil {
		return err
	}
	defer func() { _ = body.Close() }()
	lines := bufio.NewReader(body)
	for n := 0; o.Count == 0 || n < o.Count; {
		line, err := bounded.Line(lines, s.most)
		if ctx.Err() != nil {
			return nil // interrupted: that is how a tail ends
		}
		if err != nil {
			return fmt.Errorf("the trajectory API ended the stream of arrivals: %w", err)
		}
		var a trajectories.Arrival
		if err := json.Unmarshal(line, &a); err != nil {
			return fmt.Errorf("reading an arrival: %w", err)
		}
		if o.Env != "" && a.Env != o.Env {
			continue
		}
		n++
		text := string(line)
		if !o.JSON {
			text = arrivalLine(a, o.Width)
		}
		if _, err := io.WriteString(out, text); err != nil {
			return fmt.Errorf("writing an arrival: %w", err)
		}
	}
	return nil
}

func arrivalLine(a trajectories.Arrival, width int) string {
	if width <= 0 {
		width = 120
	}
	var g sampleGroup
	_ = json.Unmarshal(a.Group, &g) // the server has validated it
	head := fmt.Sprintf(
		"%s  %-16s %d×%-5d score %s  %s  ",
		a.At.Format(time.TimeOnly),
		oneLine(a.Env),
		a.Size,
		a.Tokens/max(1, a.Size),
		scores(g.Scores),
		version(a.MinVersion, a.MaxVersion),
	)
	line := head + g.preview(max(20, width-len(head))) + "\n"
	if a.Missed > 0 {
		line = fmt.Sprintf("… %d groups arrived faster than they could be shown\n", a.Missed) + line
	}
	return line
}

// scores shows the mean and the range.
func scores(all []float64) string {
	if len(all) == 0 {
		return "-"
	}
	least, most, sum := all[0], all[0], 0.0
	for _, s := range all {
		least, most, sum = min(least, s), max(most, s), sum+s
	}
	return fmt.Sprintf("%.3g (%.3g…%.3g)", sum/float64(len(all)), least, most)
}

func version(oldest, newest int64) string {
	switch {
	case oldest < 0:
		return "v?"
	case oldest == newest:
		return fmt.Sprintf("v%d", oldest)
	}
	return fmt.Sprintf("v%d–%d", oldest, newest)
}

// sampleGroup is what people want to see of a group.
type sampleGroup struct {
	Tokens            [][]json.Number `json:"tokens"`
	Masks             [][]json.Number `json:"masks"`
	Scores            []float64       `json:"scores"`
	InferenceLogprobs [][]float64     `json:"inference_logprobs"`
	Advantages        [][]float64     `json:"advantages"`
	EnvID             *int            `json:"env_id"`
	PolicyVersion     json.RawMessage `json:"policy_version"`
	Messages          [][]struct {
		Role    any `json:"role"`
		Content any `json:"content"`
	} `json:"messages"`
	Overrides      []map[string]any `json:"overrides"`
	GroupOverrides map[string]any   `json:"group_overrides"`
}

// expected is the right answer, where the environment gave it.
func (g *sampleGroup) expected() string {
	text, _ := g.GroupOverrides[trajectory.OverrideExpected].(string)
	return text
}

// failed is why a sequence has no score; empty: it has one.
func (g *sampleGroup) failed(i int) string {
	if i >= len(g.Overrides) {
		return ""
	}
	text, _ := g.Overrides[i][trajectory.OverrideFailed].(string)
	return text
}

// beside is what is known of a sequence beside its score, for one line; empty: nothing.
func (g *sampleGroup) beside(i int) string {
	if i >= len(g.Overrides) {
		return ""
	}
	var parts []string
	metrics, _ := g.Overrides[i][trajectory.OverrideMetrics].(map[string]any)
	for _, name := range slices.Sorted(maps.Keys(metrics)) {
		parts = append(parts, shorten(fmt.Sprintf("%s %v", name, metrics[name]), 200))
	}
	if finish, _ := g.Overrides[i][trajectory.OverrideFinish].(string); finish != "" {
		parts = append(parts, "finish_reason "+shorten(finish, 200))
	}
	if why := g.failed(i); why != "" {
		parts = append(parts, "failed: "+shorten(why, 600))
	}
	return strings.Join(parts, ", ")
}

// preview is the beginning of the prompt and of the completion with the best score.
func (g *sampleGroup) preview(width int) string {
	best := 0
	for i, s := range g.Scores {
		if s > g.Scores[best] {
			best = i
		}
	}
	prompt, completion := g.texts(best)
	return shorten(prompt, width/2-2) + " → " + shorten(completion, width/2-2)
}

// texts are the prompt and the completion of a sequence: its messages when it has some, else its token ids.
func (g *sampleGroup) texts(i int) (prompt, completion string) {
	if i < len(g.Messages) && len(g.Messages[i]) > 0 {
		m := g.Messages[i]
		parts := make([]string, 0, len(m))
		for _, message := range m[:len(m)-1] {
			parts = append(parts, fmt.Sprint(message.Content))
		}
		return strings.Join(parts, " ¦ "), fmt.Sprint(m[len(m)-1].Content)
	}
	if i >= len(g.Tokens) || i >= len(g.Masks) {
		return "", ""
	}
	cut := 0
	for cut < min(len(g.Masks[i]), len(g.Tokens[i])) && g.Masks[i][cut] == "-100" {
		cut++
	}
	return join(g.Tokens[i][:cut]), join(g.Tokens[i][cut:])
}

func join(tokens []json.Number) string {
	parts := make([]string, len(tokens))
	for i, t := range tokens {
		parts[i] = t.String()
	}
	return "[" + strings.Join(parts, " ") + "]"
}

// oneLine is a text without line breaks and columns: a name must not make a line of its own.
func oneLine(s string) string { return strings.Join(strings.Fields(s), " ") }

// shorten keeps the beginning, on one line.
func shorten(s string, width int) string {
	s = oneLine(s)
	runes := []rune(s)
	if len(runes) <= width {
		return s
	}
	return string(runes[:max(0, width-1)]) + "…"
}
