package server

import (
	"bytes"
	"encoding/json"
	"net/http"
	"strings"
)

type message struct {
	Role      string     `json:"role,omitempty"`
	Content   string     `json:"content"`
	ToolCalls []toolCall `json:"-"` // read only
}

// toolCall is a call of a tool in an earlier answer.
type toolCall struct {
	Function json.RawMessage `json:"function"`
}

// UnmarshalJSON also takes content as a list of text parts.
func (m *message) UnmarshalJSON(data []byte) error {
	var raw struct {
		Role    string          `json:"role"`
		Content json.RawMessage `json:"content"`
		Calls   []toolCall      `json:"tool_calls"`
	}
	if err := json.Unmarshal(data, &raw); err != nil {
		return err
	}
	m.Role, m.ToolCalls = raw.Role, raw.Calls
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

// flatten is the chat template: tools, contents and calls of tools in order, a line each, but an answer follows what it
// answers at once, as it was sampled. lm.ChatTemplate says the same to Python. A single user message gives the very
// prompt that /v1/completions would get; a model this small knows no roles.
func flatten(messages []message, tools json.RawMessage) (string, error) {
	var b strings.Builder
	object := func(raw json.RawMessage, field string) error {
		if b.Len() > 0 {
			b.WriteByte('\n')
		}
		if err := writeAsPython(&b, raw); err != nil {
			return badRequest(field, "%s: want JSON objects, got %s", field, raw)
		}
		return nil
	}
	var list []json.RawMessage
	if len(tools) > 0 && json.Unmarshal(tools, &list) != nil {
		return "", badRequest("tools", "tools: want a list of functions, got %s", tools)
	}
	for _, tool := range list {
		if err := object(tool, "tools"); err != nil {
			return "", err
		}
	}
	for _, m := range messages {
		if b.Len() > 0 && m.Content != "" && m.Role != "assistant" {
			b.WriteByte('\n')
		}
		b.WriteString(m.Content)
		for _, call := range m.ToolCalls {
			if err := object(call.Function, "tool_calls"); err != nil {
				return "", err
			}
		}
	}
	return b.String(), nil
}

// writeAsPython writes JSON as Python's json.dumps does by itself, which the template's tojson is: with a space after
// each comma and colon.
func writeAsPython(b *strings.Builder, raw json.RawMessage) error {
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	return writeValue(b, d)
}

func writeValue(b *strings.Builder, d *json.Decoder) error {
	token, err := d.Token()
	if err != nil {
		return err
	}
	delimiter, nested := token.(json.Delim)
	if !nested {
		return writeScalar(b, token)
	}
	b.WriteString(delimiter.String())
	for n := 0; d.More(); n++ {
		if n > 0 {
			b.WriteString(", ")
		}
		if delimiter == '{' {
			if err := writeValue(b, d); err != nil { // the key
				return err
			}
			b.WriteString(": ")
		}
		if err := writeValue(b, d); err != nil {
			return err
		}
	}
	end, err := d.Token()
	if err == nil {
		b.WriteString(end.(json.Delim).String())
	}
	return err
}

func writeScalar(b *strings.Builder, token json.Token) error {
	var text bytes.Buffer
	e := json.NewEncoder(&text)
	e.SetEscapeHTML(false)
	if err := e.Encode(token); err != nil {
		return err
	}
	b.WriteString(strings.TrimSuffix(text.String(), "\n"))
	return nil
}

type chatRequest struct {
	params
	Messages            []message       `json:"messages"`
	MaxCompletionTokens *int            `json:"max_completion_tokens"`
	LogProbs            bool            `json:"logprobs"`
	TopLogProbs         int             `json:"top_logprobs"`
	Tools               json.RawMessage `json:"tools"`
	ToolChoice          json.RawMessage `json:"tool_choice"`
}

// checkToolChoice refuses a choice that would have to guide the sampling.
func (q *chatRequest) checkToolChoice() error {
	switch string(q.ToolChoice) {
	case "", "null", `"auto"`, `"none"`:
		return nil
	}
	return badRequest("tool_choice", "tool_choice: the embedded model cannot be made to call a tool: want \"auto\" or "+
		"\"none\", got %s; or use a vllm inference block", q.ToolChoice)
}

func (h *Handler) chat(w http.ResponseWriter, r *http.Request) error {
	var q chatRequest
	if err := readJSON(r, &q); err != nil {
		return err
	}
	if len(q.Messages) == 0 {
		return badRequest("messages", "messages: want at least one, got none")
	}
	if err := q.checkToolChoice(); err != nil {
		return err
	}
	if q.MaxCompletionTokens != nil {
		q.MaxTokens = q.MaxCompletionTokens
	}
	text, err := flatten(q.Messages, q.Tools)
	if err != nil {
		return err
	}
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

func (f *chatForm) head() []int32 {
	if f.query.TokenIDs {
		return f.prompt
	}
	return nil
}

func (f *chatForm) choice(i int, c Completion) (choice, error) {
	out := choice{Index: i, Message: &message{Role: "assistant", Content: c.Text}, Finish: &c.Finish}
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
