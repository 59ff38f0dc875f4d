package vllm

import (
	"context"
	"fmt"

	"github.com/recipe-rl/recipe/sdk/inference"
	"github.com/recipe-rl/recipe/sdk/kit/engine"
)

var _ engine.AnswerReader = (*client)(nil)

// derender is the route by which vLLM reads the tokens of an answer, with the parsers of its chat completions.
const derender = "/v1/chat/completions/derender"

// Read implements engine.AnswerReader.
func (c *client) Read(ctx context.Context, s inference.Sampled) (out inference.Said, err error) {
	tools := len(s.Tools) > 0 && c.tools != "" && c.tools != hermes
	if !tools && c.reasoning == "" || !c.offers.routes[derender] {
		return out, inference.ErrNotRead
	}
	request := map[string]any{"model": c.model, "messages": []map[string]string{{"role": "user", "content": ""}}}
	if len(s.Tools) > 0 && c.tools != "" {
		request["tools"], request["tool_choice"] = s.Tools, "auto"
	}
	if len(s.Variables) > 0 {
		request["chat_template_kwargs"] = s.Variables
	}
	body := map[string]any{"model": c.model, "prompt_token_ids": s.Prompt, "chat_request": request,
		"generate_response": map[string]any{"request_id": "session", "prompt_token_ids": s.Prompt,
			"choices": []any{map[string]any{"index": 0, "token_ids": s.Output, "finish_reason": s.Finish}}}}
	var answer struct {
		Choices []struct {
			Message struct {
				Content   string `json:"content"`
				Reasoning string `json:"reasoning"`
				Earlier   string `json:"reasoning_content"` // the same before vLLM 0.12
				Calls     []struct {
					Function struct {
						Name      string `json:"name"`
						Arguments string `json:"arguments"`
					} `json:"function"`
				} `json:"tool_calls"`
			} `json:"message"`
		} `json:"choices"`
	}
	if err := c.Post(ctx, derender, body, &answer); err != nil {
		return out, err
	}
	if len(answer.Choices) != 1 {
		return out, fmt.Errorf("POST %s: expected one choice, got %d", derender, len(answer.Choices))
	}
	m := answer.Choices[0].Message
	out.Text, out.Reasoning = m.Content, m.Reasoning+m.Earlier
	for _, call := range m.Calls {
		out.Calls = append(out.Calls, inference.ToolCall(call.Function))
	}
	return out, nil
}
