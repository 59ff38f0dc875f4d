package server

import (
	"encoding/json"
	"net/http"
	"strings"
)

type message struct {
	Role    string `json:"role,omitempty"`
	Content string `json:"content"`
}

// UnmarshalJSON also takes content as a list of text parts.
func (m *message) UnmarshalJSON(data []byte) error {
	var raw struct {
		Role    string          `json:"role"`
		Content json.RawMessage `json:"content"`
	}
	if err := json.Unmarshal(data, &raw); err != nil {
		return err
	}
	m.Role = raw.Role
	if len(raw.Content) == 0 || json.Unmarshal(raw.Content, &m.Content) == nil {
		return nil
	}
	var parts []struct {
		Type string `json:"type"`
		Text string `json:"text"`
	}
	if err := json.Unmarshal(raw.Content, &parts); err != nil {
		return badRequest("messages", "message content: want a text or a list of text parts")
	}
	for _, p := range parts {
		if p.Type != "text" {
			return badRequest("messages", "message content: the embedded model reads text only, got a part of type %q", p.Type)
		}
		m.Content += p.Text
	}
	return nil
}

// flatten is the chat template: the contents in order, a line each, but an answer follows what it answers at once, as
// it was sampled. lm.ChatTemplate says the same to Python. A single user message gives the very prompt that
// /v1/completions would get; a model this small knows no roles.
func flatten(messages []message) string {
	var b strings.Builder
	for _, m := range messages {
		if b.Len() > 0 && m.Content != "" && m.Role != "assistant" {
			b.WriteByte('\n')
		}
		b.WriteString(m.Content)
	}
	return b.String()
}

type chatRequest struct {
	params
	Messages            []message       `json:"messages"`
	MaxCompletionTokens *int            `json:"max_completion_tokens"`
	LogProbs            bool            `json:"logprobs"`
	TopLogProbs         int             `json:"top_logprobs"`
	Tools               json.RawMessage `json:"tools"`
}

func (h *Handler) chat(w http.ResponseWriter, r *http.Request) error {
	var q chatRequest
	if err := readJSON(r, &q); err != nil {
		return err
	}
	if len(q.Messages) == 0 {
		return badRequest("messages", "messages: want at least one, got none")
	}
	if len(q.Tools) > 0 && string(q.Tools) != "null" && string(q.Tools) != "[]" {
		return badRequest("tools",
			"tools are not offered by the embedded model; leave them out or use a vllm inference block")
	}
	if q.MaxCompletionTokens != nil {
		q.MaxTokens = q.MaxCompletionTokens
	}
	text := flatten(q.Messages)
	tokens, err := h.tokens(prompt{text: &text})
	if err != nil {
		return err
	}
	request, err := h.request(&q.params, tokens, 0)
	if err != nil {
		return err
	}
	if q.TopLogProbs != 0 && !q.LogProbs {
		return badRequest("top_logprobs", "top_logprobs: want logprobs true with it")
	}
	if err := request.setAlternatives("top_logprobs", q.TopLogProbs); err != nil {
		return err
	}
	f := &chatForm{handler: h, query: &q, prompt: tokens}
	if q.Stream {
		return h.stream(w, r, request, f, q.Options.Usage)
	}
	results, err := h.engine.Generate(r.Context(), request)
	if err != nil {
		return err
	}
	return h.answer(w, f, request, results)
}

// chatForm is the form of /v1/chat/completions.
type chatForm struct {
	handler *Handler
	query   *chatRequest
	prompt  []int32
}

// chatLogProbs is the "logprobs" of a chat choice.
type chatLogProbs struct {
	Content []chatLogProb `json:"content"`
}

type chatLogProb struct {
	Token   string        `json:"token"`
	LogProb float64       `json:"logprob"`
	Bytes   []int         `json:"bytes"`
	Top     []chatLogProb `json:"top_logprobs,omitzero"`
}

func (f *chatForm) idPrefix() string { return "chatcmpl-" }

func (f *chatForm) object(stream bool) string {
	if stream {
		return "chat.completion.chunk"
	}
	return "chat.completion"
}

func (f *chatForm) whole(r *response) {
	if f.query.TokenIDs {
		r.PromptTokenIDs = f.prompt
	}
}

func (f *chatForm) choice(i int, c Completion) (choice, error) {
	out := choice{Index: i, Message: &message{"assistant", c.Text}, Finish: &c.Finish}
	if c.Stop != "" {
		out.Stop = &c.Stop
	}
	if f.query.TokenIDs {
		out.TokenIDs = ids(c.Tokens)
	}
	if f.query.LogProbs {
		out.LogProbs = f.logProbs(c.Tokens)
	}
	return out, nil
}

func (f *chatForm) chunk(p Progress, text string, first bool) choice {
	out := choice{Index: p.Index, Delta: &message{Content: text}}
	if first {
		out.Delta.Role = "assistant"
	}
	if f.query.TokenIDs {
		out.TokenIDs = []int32{p.Token.ID}
	}
	if f.query.LogProbs {
		out.LogProbs = f.logProbs([]Token{p.Token})
	}
	return out
}

func (f *chatForm) logProbs(tokens []Token) *chatLogProbs {
	out := &chatLogProbs{Content: []chatLogProb{}}
	for _, t := range tokens {
		entry := f.entry(t.ID, t.LogProb)
		entry.Top = []chatLogProb{}
		for _, a := range t.Alternatives {
			entry.Top = append(entry.Top, f.entry(a.ID, a.LogProb))
		}
		out.Content = append(out.Content, entry)
	}
	return out
}

func (f *chatForm) entry(id int32, logProb float64) chatLogProb {
	out := chatLogProb{Token: f.handler.name(id, f.query.TokensAsTokenIDs), LogProb: logProb, Bytes: []int{}}
	for _, b := range []byte(f.handler.engine.Tokenizer().Decode([]int32{id})) {
		out.Bytes = append(out.Bytes, int(b))
	}
	return out
}
