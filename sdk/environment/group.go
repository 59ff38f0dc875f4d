package environment

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/recipe-rl/recipe/sdk/trajectory"
)

// group builds what is posted of a task.
func (r *rolled) group(task Task, p sampling) (*trajectory.Group, error) {
	g := &trajectory.Group{
		Scores: r.scores(), PolicyVersion: r.versions(), Overrides: r.overrides(),
		Task: r.task,
		GenerationParams: map[string]any{"temperature": p.Temperature, "top_p": p.TopP, "max_tokens": p.MaxTokens,
			"n": p.N},
	}
	for name, v := range map[string]*float64{"min_p": p.MinP, "repetition_penalty": p.Repetition} {
		if v != nil {
			g.GenerationParams[name] = *v
		}
	}
	if p.TopK != nil {
		g.GenerationParams["top_k"] = *p.TopK
	}
	if task.Expected != "" {
		g.GroupOverrides = map[string]any{trajectory.OverrideExpected: strings.ToValidUTF8(task.Expected, "\ufffd")}
	}
	conversations := make([][]Message, len(r.sequences))
	for i, s := range r.sequences {
		g.Tokens = append(g.Tokens, s.tokens)
		g.Masks = append(g.Masks, s.masks)
		g.InferenceLogprobs = append(g.InferenceLogprobs, s.logprobs)
		if s.advantages != nil {
			if g.Advantages == nil {
				g.Advantages = make([][]float64, len(r.sequences))
			}
			g.Advantages[i] = s.advantages
		}
		conversations[i] = s.conversation
	}
	var err error
	if g.Messages, err = json.Marshal(conversations); err != nil {
		return nil, fmt.Errorf("encode the conversations: %w", err)
	}
	return g, nil
}

// overrides hold what the keys of package trajectory name, of each sequence; nil when there is nothing.
func (r *rolled) overrides() []map[string]any {
	list, some := make([]map[string]any, len(r.sequences)), false
	parts, rollout := r.rollouts() < len(r.sequences), -1
	for i := range r.sequences {
		s := &r.sequences[i]
		list[i] = map[string]any{}
		if spans := s.versionSpans(); spans != nil {
			list[i][trajectory.OverrideVersions], some = spans, true
		}
		if len(s.metrics) > 0 {
			list[i][trajectory.OverrideMetrics], some = s.metrics, true
		}
		if finish := s.finish; finish != "" {
			if s.cut {
				finish = "length"
			}
			list[i][trajectory.OverrideFinish], some = finish, true
		}
		if s.stop != "" {
			list[i][trajectory.OverrideStop], some = s.stop, true
		}
		if parts {
			if !s.part {
				rollout++
			}
			list[i][trajectory.OverrideRollout], some = rollout, true
		}
		if len(s.left) > 0 {
			list[i][trajectory.OverrideMasked], some = s.left, true
		}
		if s.failed != nil {
			list[i][trajectory.OverrideFailed], some = brief([]byte(s.failed.Error())), true
		}
	}
	if !some {
		return nil
	}
	return list
}

func (t Task) conversation() []Message {
	if t.Messages == nil {
		return []Message{{Role: "user", Content: t.Prompt}}
	}
	return append([]Message(nil), t.Messages...)
}

// text is the prompt for people.
func (t Task) text() string {
	if len(t.Messages) == 0 {
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
