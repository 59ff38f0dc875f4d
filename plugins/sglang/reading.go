package sglang

import (
	"context"
	"encoding/json"
	"strings"

	"github.com/recipe-rl/recipe/sdk/inference"
	"github.com/recipe-rl/recipe/sdk/kit/engine"
)

var _ engine.AnswerReader = (*client)(nil)

// Read implements engine.AnswerReader: SGLang takes reasoning out of a text, and then calls of tools.
func (c *client) Read(ctx context.Context, s inference.Sampled) (out inference.Said, err error) {
	tools := len(s.Tools) > 0 && c.tools != "" && c.tools != hermes
	if !tools && c.reasoning == "" {
		return out, inference.ErrNotRead
	}
	if out.Text, err = c.whole(ctx, s); err != nil {
		return out, err
	}
	if c.reasoning != "" {
		var apart struct {
			Reasoning string `json:"reasoning_text"`
			Text      string `json:"text"`
		}
		body := map[string]any{"text": out.Text, "reasoning_parser": c.reasoning}
		if err := c.Post(ctx, "/separate_reasoning", body, &apart); err != nil {
			return out, err
		}
		out.Reasoning, out.Text = apart.Reasoning, apart.Text
	}
	if len(s.Tools) == 0 || c.tools == "" {
		return out, nil
	}
	var found struct {
		Text  string `json:"normal_text"`
		Calls []struct {
			Name      string `json:"name"`
			Arguments string `json:"parameters"`
		} `json:"calls"`
	}
	body := map[string]any{"text": out.Text, "tool_call_parser": c.tools, "tools": s.Tools}
	if err := c.Post(ctx, "/parse_function_call", body, &found); err != nil {
		return out, err
	}
	out.Text = found.Text
	for _, call := range found.Calls {
		out.Calls = append(out.Calls, inference.ToolCall(call))
	}
	return out, nil
}

// whole is the answer with the special tokens that a parser may look for, without the one that ends it.
func (c *client) whole(ctx context.Context, s inference.Sampled) (string, error) {
	tokens := s.Output
	if s.Finish == "stop" && len(tokens) > 0 {
		tokens = tokens[:len(tokens)-1]
	}
	if len(tokens) == 0 {
		return "", nil
	}
	var decoded struct {
		Text json.RawMessage `json:"text"` // a text, or a list of one
	}
	body := map[string]any{"model": c.config.policyName(), "tokens": tokens, "skip_special_tokens": false}
	if err := c.Post(ctx, "/detokenize", body, &decoded); err != nil {
		return "", err
	}
	var text string
	var list []string
	if json.Unmarshal(decoded.Text, &text) != nil && json.Unmarshal(decoded.Text, &list) == nil {
		text = strings.Join(list, "")
	}
	return text, nil
}
