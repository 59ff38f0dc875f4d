package plugintest

import (
	"encoding/json"
	"strings"

	"github.com/recipe-rl/recipe/sdk/pluginpb"
	"github.com/recipe-rl/recipe/sdk/trajectory"
)

// Rescore has the block score a group again that it has posted, with rollouts of one answer.
func (b *Block) Rescore(g trajectory.Group) *pluginpb.RescoreResponse {
	b.t.Helper()
	var said [][]json.RawMessage
	if err := json.Unmarshal(g.Messages, &said); err != nil || len(said) != len(g.Tokens) {
		b.t.Fatalf("%d conversations of %d sequences: %v", len(said), len(g.Tokens), err)
	}
	request := &pluginpb.RescoreRequest{Task: g.Task}
	request.Expected, _ = g.GroupOverrides[trajectory.OverrideExpected].(string)
	prompt := 0
	for prompt < len(g.Masks[0]) && g.Masks[0][prompt] == -100 {
		prompt++
	}
	for i, turns := range said {
		if i == 0 {
			request.Messages, _ = json.Marshal(turns[:len(turns)-1]) // JSON already
		}
		c := &pluginpb.RecordedCompletion{Logprobs: g.InferenceLogprobs[i][prompt:]}
		if len(g.Overrides) > i {
			c.FinishReason, _ = g.Overrides[i][trajectory.OverrideFinish].(string)
			c.Stop, _ = g.Overrides[i][trajectory.OverrideStop].(string)
		}
		var last struct{ Content string }
		if err := json.Unmarshal(turns[len(turns)-1], &last); err != nil {
			b.t.Fatal(err)
		}
		c.Text = strings.TrimSuffix(last.Content, c.GetStop())
		for _, id := range g.Tokens[i][prompt:] {
			c.Tokens = append(c.Tokens, int64(id))
		}
		request.Completions = append(request.Completions, c)
	}
	made, err := b.Client.Rescore(b.t.Context(), request)
	if err != nil {
		b.t.Fatalf("score a group again: %v", err)
	}
	return made
}
