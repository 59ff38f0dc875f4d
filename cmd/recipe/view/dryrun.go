package view

import (
	"fmt"
	"io"
	"strings"
)

// DryRun is what opening an environment once has shown. Both completions of its group have the same answer.
type DryRun struct {
	Environment string         `json:"environment"`
	Answer      string         `json:"answer"`
	Says        []string       `json:"says,omitempty"` // by the environment when it was opened, such as its spaces
	Prompt      []TriedMessage `json:"prompt"`
	// PromptBytes is the length of the prompt in UTF-8; PromptTokens is what it will be in tokens, about.
	PromptBytes  int `json:"prompt_bytes"`
	PromptTokens int `json:"prompt_tokens"`
	MaxTokens    int `json:"max_tokens"`    // of an answer
	MaxModelLen  int `json:"max_model_len"` // of the inference block; 0: not known
	// Mixed are the beginnings of the group's rollouts, where they differ.
	Mixed  [][]TriedMessage `json:"mixed,omitempty"`
	Scores []float64        `json:"scores"`
	Turns  int              `json:"turns"` // of the model, the most of a rollout
	Wrong  []string         `json:"wrong"` // what is wrong; none: nothing was found
}

// Check fills Wrong.
func (d *DryRun) Check() {
	d.Wrong = []string{}
	if need := d.PromptTokens + d.MaxTokens; d.MaxModelLen > 0 && need > d.MaxModelLen {
		d.Wrong = append(d.Wrong, fmt.Sprintf("the first prompt (about %d tokens) and max_tokens = %d are longer than the "+
			"model's context of %d tokens: raise max_model_len, lower max_tokens or shorten the prompt", d.PromptTokens,
			d.MaxTokens, d.MaxModelLen))
	}
	if len(d.Mixed) > 0 {
		d.Wrong = append(d.Wrong, "the rollouts of one group begin differently, so their scores are not about one task: "+
			"the environment draws by something other than the seed that it is reset with")
	}
	if g := (TriedGroup{}); len(d.Mixed) == 0 {
		for _, score := range d.Scores {
			g.Completions = append(g.Completions, TriedCompletion{Score: &score})
		}
		if len(g.Completions) > 1 && !g.equal() {
			d.Wrong = append(d.Wrong, fmt.Sprintf("one answer has the scores %s and %s in one group: the environment or its "+
				"score draws at random, which adds noise to every advantage", figure(d.Scores[0]), figure(d.Scores[1])))
		}
	}
}

// Show writes it for people.
func (d DryRun) Show(w io.Writer, s Style) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%s opens; no model was asked\n\n", s.Bold(d.Environment))
	for _, line := range d.Says {
		fmt.Fprintf(&b, "  %s\n", s.Dim(oneLine(line)))
	}
	for _, m := range d.Prompt {
		b.WriteString(turn(s, m.Role, m.Content))
	}
	context := "the model's context is not known"
	if d.MaxModelLen > 0 {
		context = fmt.Sprintf("the model's context has %d", d.MaxModelLen)
	}
	fmt.Fprintf(&b, "\nfirst prompt  %d bytes, about %d tokens, %d with max_tokens; %s\n", d.PromptBytes, d.PromptTokens,
		d.PromptTokens+d.MaxTokens, context)
	scores := make([]string, len(d.Scores))
	for i, score := range d.Scores {
		scores[i] = figure(score)
	}
	fmt.Fprintf(&b, "answer        %q in up to %s: score %s\n", d.Answer, count(d.Turns, "turn"),
		strings.Join(scores, ", "))
	same := "the same beginning"
	if len(d.Mixed) > 0 {
		same = "different beginnings"
	}
	fmt.Fprintf(&b, "one group     %s, %s\n", count(len(d.Scores), "rollout"), same)
	for _, mixed := range d.Mixed {
		for _, m := range mixed {
			b.WriteString(turn(s, m.Role, m.Content))
		}
		b.WriteString("\n")
	}
	for _, wrong := range d.Wrong {
		fmt.Fprintf(&b, "%s\n", s.Yellow("Wrong: "+wrong))
	}
	_, err := io.WriteString(w, b.String())
	return err
}
