package gateway

import (
	"bytes"
	"context"
	"net/http"
	"strconv"
	"strings"

	"github.com/tidwall/gjson"
)

// Agents ask for as many tokens as a large model may answer with, 32,000 or more, whatever the context of the policy.
// Engines refuse what does not fit behind the prompt. The gateway then asks for what fits.

// lengths are the names of the largest number of tokens to generate, by route.
var lengths = map[string][]string{
	"/v1/completions":      {"max_tokens"},
	"/v1/chat/completions": {"max_tokens", "max_completion_tokens"},
	"/v1/messages":         {"max_tokens"},
	"/v1/responses":        {"max_output_tokens"},
}

// clamp changes a call that an engine refused to one for the tokens that fit into the context. It is false if something
// else was wrong with the call.
func (g *Gateway) clamp(ctx context.Context, c *call) bool {
	if c.method != http.MethodPost || lengths[c.path] == nil {
		return false
	}
	wanted, at := 0, []span(nil)
	for _, name := range lengths[c.path] {
		v := gjson.GetBytes(c.body, name)
		if where, ok := spanOf(c.body, v); ok && v.Type == gjson.Number {
			wanted, at = max(wanted, int(v.Num)), append(at, where)
		}
	}
	if wanted == 0 {
		return false
	}
	used, limit, ok := g.promptLength(ctx, c)
	if !ok || used >= limit || used+wanted <= limit {
		return false
	}
	for _, where := range at {
		c.edit(where, strconv.Itoa(limit-used))
	}
	g.met.clamped.Add(1)
	return true
}

// promptLength asks the engine's tokenizer how many tokens the prompt has. Limit is the engine's context in tokens.
func (g *Gateway) promptLength(ctx context.Context, c *call) (used, limit int, ok bool) {
	if n := len(c.promptIDs); n > 0 {
		limit = g.contextLength(ctx, c)
		return n, limit, limit > 0
	}
	switch c.path {
	case "/v1/messages":
		limit = g.contextLength(ctx, c)
		count := gjson.GetBytes(g.askEngine(ctx, c, "/v1/messages/count_tokens", c.body), "input_tokens")
		return int(count.Int()), limit, limit > 0 && count.Type == gjson.Number
	case "/v1/completions", "/v1/chat/completions":
		answer := gjson.ParseBytes(g.askEngine(ctx, c, "/tokenize", tokenizeBody(c.body)))
		used, limit = int(answer.Get("count").Int()), int(answer.Get("max_model_len").Int())
		return used, limit, used > 0 && limit > 0
	}
	return 0, 0, false
}

// tokenizeBody is the part of a request that decides its prompt.
func tokenizeBody(body []byte) []byte {
	out := []byte{'{'}
	gjson.ParseBytes(body).ForEach(func(key, v gjson.Result) bool {
		switch key.Str {
		case "model", "prompt", "messages", "tools", "chat_template", "chat_template_kwargs", "add_generation_prompt",
			"continue_final_message", "add_special_tokens":
			if len(out) > 1 {
				out = append(out, ',')
			}
			out = append(append(append(out, key.Raw...), ':'), v.Raw...)
		}
		return true
	})
	return append(out, '}')
}

// contextLength is the context of the model that a call names, as the engine's list of models has it; 0 if it has none.
func (g *Gateway) contextLength(ctx context.Context, c *call) int {
	name, longest := gjson.GetBytes(c.body, "model").Str, 0
	for _, m := range gjson.GetBytes(g.askEngine(ctx, c, "/v1/models", nil), "data").Array() {
		n := int(m.Get("max_model_len").Int())
		if m.Get("id").Str == name {
			return n
		}
		longest = max(longest, n)
	}
	return longest
}

// askEngine asks a replica on behalf of a call. It returns nothing unless the answer is 200.
func (g *Gateway) askEngine(ctx context.Context, c *call, path string, body []byte) []byte {
	method := http.MethodPost
	if body == nil {
		method = http.MethodGet
	}
	a, err := g.send(ctx, &call{method: method, path: path, header: http.Header{}, body: body, prompt: c.prompt})
	if err != nil {
		return nil
	}
	if a.rest != nil || a.status != http.StatusOK {
		a.discard(g)
		return nil
	}
	return a.body
}

// edit replaces a part of the body for the engine. Edits stay in their order in the body.
func (c *call) edit(at span, raw string) {
	i := 0
	for i < len(c.edits) && c.edits[i].at.from < at.from {
		i++
	}
	c.edits = append(c.edits[:i], append([]edit{{at, raw}}, c.edits[i:]...)...)
}

// isRefusedLength reports whether an answer may be a refusal of the number of tokens: engines answer 400 to it.
func isRefusedLength(a *answer) bool {
	return a.status == http.StatusBadRequest && a.rest == nil && (bytes.Contains(a.body, []byte("token")) ||
		strings.Contains(strings.ToLower(string(a.body)), "context"))
}
