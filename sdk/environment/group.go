package environment

import (
	"encoding/json"
	"fmt"

	"github.com/recipe-rl/recipe/sdk/trajectory"
)

// What stands where a token is not trained on, as Atropos has it.
const (
	maskPrompt    = -100
	logprobPrompt = 1.0
)

// group builds what is posted: each sequence is the prompt and one completion; the prompt is masked.
func (s *sample) group(task Task, scores []float64, p sampling, env int) (*trajectory.Group, error) {
	g := &trajectory.Group{
		Scores: scores, EnvID: &env, PolicyVersion: s.versions,
		GenerationParams: map[string]any{"temperature": p.Temperature, "top_p": p.TopP, "max_tokens": p.MaxTokens,
			"n": p.N},
	}
	conversations := make([][]Message, len(s.completions))
	for i, c := range s.completions {
		length := len(s.prompt) + len(c.Tokens)
		tokens := append(append(make([]int, 0, length), s.prompt...), c.Tokens...)
		masks := make([]int, 0, length)
		logprobs := make([]float64, 0, length)
		for range s.prompt {
			masks, logprobs = append(masks, maskPrompt), append(logprobs, logprobPrompt)
		}
		masks, logprobs = append(masks, c.Tokens...), append(logprobs, c.Logprobs...)
		g.Tokens = append(g.Tokens, tokens)
		g.Masks = append(g.Masks, masks)
		g.InferenceLogprobs = append(g.InferenceLogprobs, logprobs)
		conversations[i] = append(task.conversation(), Message{"assistant", c.Text})
	}
	g.Overrides = s.overrides()
	var err error
	if g.Messages, err = json.Marshal(conversations); err != nil {
		return nil, fmt.Errorf("encode the conversations: %w", err)
	}
	return g, nil
}

// overrides say of sequences that several policy versions sampled which token came from which; nil when there are none.
func (s *sample) overrides() []map[string]any {
	var list []map[string]any
	for i, spans := range s.spans {
		if spans == nil {
			continue
		}
		if list == nil {
			list = make([]map[string]any, len(s.completions))
			for j := range list {
				list[j] = map[string]any{}
			}
		}
		placed := make([]trajectory.VersionSpan, len(spans))
		for j, v := range spans {
			placed[j] = trajectory.VersionSpan{Version: v.Version, Start: len(s.prompt) + v.Start,
				End: len(s.prompt) + v.End}
		}
		list[i][trajectory.OverrideVersions] = placed
	}
	return list
}

func (t Task) conversation() []Message {
	if t.Messages == nil {
		return []Message{{"user", t.Prompt}}
	}
	return append([]Message(nil), t.Messages...)
}

// text is the prompt for people.
func (t Task) text() string {
	if t.Messages == nil {
		return t.Prompt
	}
	return t.Messages[len(t.Messages)-1].Content
}

// longest is the length of the longest sequence.
func longest(g *trajectory.Group) int {
	most := 0
	for _, tokens := range g.Tokens {
		most = max(most, len(tokens))
	}
	return most
}

// equal says whether there is nothing to learn from the scores.
func equal(scores []float64) bool {
	for _, s := range scores {
		if s != scores[0] {
			return false
		}
	}
	return true
}
