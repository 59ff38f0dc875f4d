package session

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
)

// ParseChat reads the body of /v1/chat/completions. What a session cannot do is an error that names the field.
func ParseChat(body []byte) (*Query, error) {
	fields, err := members(body)
	if err != nil {
		return nil, err
	}
	c := &Query{}
	var limit, newer int
	var options struct {
		Usage bool `json:"include_usage"`
	}
	for _, f := range []struct {
		name string
		into any
	}{
		{"model", &c.Model}, {"messages", &c.Raw}, {"stream", &c.Stream}, {"stream_options", &options},
		{"max_tokens", &limit}, {"max_completion_tokens", &newer},
	} {
		if raw := fields[f.name]; !null(raw) {
			if err := json.Unmarshal(raw, f.into); err != nil {
				return nil, fmt.Errorf("%s: %w", f.name, err)
			}
		}
	}
	c.Usage, c.MaxTokens = options.Usage, max(limit, newer)
	if !null(fields["tools"]) && string(bytes.TrimSpace(fields["tools"])) != "[]" {
		c.Tools = fields["tools"]
	}
	if c.Variables, err = templateVariables(fields["chat_template_kwargs"]); err != nil {
		return nil, err
	}
	c.Overruled = overruled(fields)
	if c.Stop, err = stops(fields["stop"]); err != nil {
		return nil, err
	}
	if err := refusedByChat(fields); err != nil {
		return nil, err
	}
	if c.Constraint, err = chatConstraint(fields, c.Tools); err != nil {
		return nil, err
	}
	if len(c.Raw) == 0 {
		return nil, errors.New("messages: want at least one message, got none")
	}
	for i, raw := range c.Raw {
		m, err := chatMessage(raw)
		if err != nil {
			return nil, fmt.Errorf("messages: message %d: %w", i, err)
		}
		c.Messages, c.Raw[i] = append(c.Messages, m.read()), encode(m)
	}
	return c, nil
}

// members are the members of a body.
func members(body []byte) (map[string]json.RawMessage, error) {
	if err := checkSize(body); err != nil {
		return nil, err
	}
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(body, &fields); err != nil {
		return nil, fmt.Errorf("the body is no JSON object: %w", err)
	}
	return fields, nil
}

// ofTheTemplate are the parameters with which an engine applies a chat template. They are no variables of it, though
// engines take them from the same object: a template of the program's own would run in the engine.
var ofTheTemplate = map[string]bool{
	"chat_template": true, "conversation": true, "messages": true, "tools": true, "add_generation_prompt": true,
	"continue_final_message": true, "tokenize": true, "tokenizer_kwargs": true, "padding": true, "truncation": true,
	"max_length": true, "return_tensors": true, "return_dict": true, "return_assistant_tokens_mask": true,
}

// templateVariables are the variables of the chat template.
func templateVariables(raw json.RawMessage) (json.RawMessage, error) {
	if null(raw) {
		return nil, nil
	}
	var variables map[string]json.RawMessage
	if err := json.Unmarshal(raw, &variables); err != nil {
		return nil, fmt.Errorf("chat_template_kwargs: %w", err)
	}
	for name := range variables {
		if ofTheTemplate[name] {
			return nil, fmt.Errorf("chat_template_kwargs: a session applies the model's own template in one way; want "+
				"variables of the template, got %q", name)
		}
	}
	return encode(variables), nil
}

// refusedByChat names what a session cannot do.
func refusedByChat(fields map[string]json.RawMessage) error {
	var n float64
	if json.Unmarshal(fields["n"], &n) == nil && n != 1 {
		return fmt.Errorf("n: a session gives one answer to a call, got %g", n)
	}
	if raw := fields["logprobs"]; !null(raw) && string(raw) != "false" {
		return errors.New("logprobs: a session keeps them itself and does not send them; leave it out")
	}
	return nil
}

// chatConstraint is the constraint of a forced tool, else of a format.
func chatConstraint(fields map[string]json.RawMessage, tools json.RawMessage) (*Constraint, error) {
	if c, err := forcedChoice(fields["tool_choice"], tools); c != nil || err != nil {
		return c, err
	}
	var f format
	if raw := fields["response_format"]; !null(raw) {
		if err := json.Unmarshal(raw, &f); err != nil {
			return nil, fmt.Errorf("response_format: %w", err)
		}
	}
	return f.constraint("response_format")
}

// forcedChoice is the constraint of a tool_choice: "required", or the name of a function, which Responses has without
// the object function.
func forcedChoice(raw, tools json.RawMessage) (*Constraint, error) {
	switch string(raw) {
	case "", "null", `"auto"`, `"none"`:
		return nil, nil
	case `"required"`:
		return forced(tools, "")
	}
	var choice struct {
		Type     string `json:"type"`
		Name     string `json:"name"`
		Function struct {
			Name string `json:"name"`
		} `json:"function"`
	}
	name := ""
	if json.Unmarshal(raw, &choice) == nil && choice.Type == "function" {
		name = cmp.Or(choice.Function.Name, choice.Name)
	}
	if name == "" {
		return nil, fmt.Errorf("tool_choice: want \"auto\", \"none\", \"required\" or a function by its name, got %.200s",
			raw)
	}
	return forced(tools, name)
}

// chatMessageIn is a message as it is read, and as the engine gets it: nothing else of what the program sent. An engine
// may read {"type": "text", "TYPE": "image_url"} in another way than this package.
type chatMessageIn struct {
	Role      string          `json:"role"`
	Content   json.RawMessage `json:"content,omitempty"`
	Name      string          `json:"name,omitempty"`
	Calls     []chatCallIn    `json:"tool_calls,omitempty"`
	CallID    string          `json:"tool_call_id,omitempty"`
	Reasoning string          `json:"reasoning_content,omitempty"`
	Reason    string          `json:"reasoning,omitempty"` // vLLM's later name
	text      string          // of Content
}

type chatCallIn struct {
	ID       string `json:"id"`
	Type     string `json:"type,omitempty"`
	Function struct {
		Name      string          `json:"name"`
		Arguments json.RawMessage `json:"arguments,omitempty"`
	} `json:"function"`
}

// chatMessage reads one message.
func chatMessage(raw json.RawMessage) (m chatMessageIn, err error) {
	if err := json.Unmarshal(raw, &m); err != nil {
		return m, err
	}
	switch m.Role {
	case "system", "developer", "user", "assistant", "tool":
	default:
		return m, fmt.Errorf("role: want system, developer, user, assistant or tool, got %q", m.Role)
	}
	for _, call := range m.Calls {
		var inner string
		if json.Unmarshal(call.Function.Arguments, &inner) == nil {
			if err := readable(inner); err != nil {
				return m, fmt.Errorf("tool_calls: %w", err)
			}
		}
	}
	m.text, m.Content, err = chatContent(m.Content)
	return m, err
}

// read is the message in the form that all dialects have in common.
func (in *chatMessageIn) read() Message {
	m := Message{Role: in.Role}
	switch {
	case in.Role == "tool":
		m.Parts = append(m.Parts, Part{Kind: ToolResult, ID: in.CallID, Text: in.text})
		return m
	case in.Reasoning != "" || in.Reason != "":
		m.Parts = append(m.Parts, Part{Kind: Reasoning, Text: cmp.Or(in.Reasoning, in.Reason)})
	}
	if in.text != "" || len(in.Calls) == 0 {
		m.Parts = append(m.Parts, Part{Kind: Text, Text: in.text})
	}
	for _, call := range in.Calls {
		arguments := call.Function.Arguments
		var inner string
		if json.Unmarshal(arguments, &inner) == nil { // OpenAI has them as a text that holds JSON
			arguments = json.RawMessage(inner)
		}
		m.Parts = append(m.Parts, Part{Kind: ToolCall, ID: call.ID, Name: call.Function.Name, Arguments: arguments})
	}
	return m
}

// chatContent reads a text, or a list of parts that are texts, and returns it in the same form, too.
func chatContent(raw json.RawMessage) (text string, same json.RawMessage, err error) {
	if null(raw) {
		return "", raw, nil
	}
	if json.Unmarshal(raw, &text) == nil {
		return text, encode(text), nil
	}
	var parts []struct {
		Type string `json:"type"`
		Text string `json:"text"`
	}
	if err := json.Unmarshal(raw, &parts); err != nil {
		return "", nil, errors.New("content: want a text or a list of parts")
	}
	var b strings.Builder
	for _, p := range parts {
		if p.Type != "text" {
			return "", nil, fmt.Errorf("content: a session reads texts only, got a part of type %q", p.Type)
		}
		b.WriteString(p.Text)
	}
	return b.String(), encode(parts), nil
}

type chatMessageOut struct {
	Role      string     `json:"role,omitempty"`
	Content   *string    `json:"content"`
	Reasoning string     `json:"reasoning_content,omitempty"`
	Calls     []chatCall `json:"tool_calls,omitempty"`
}

type chatCall struct {
	Index    *int   `json:"index,omitempty"` // in a stream
	ID       string `json:"id"`
	Type     string `json:"type"`
	Function struct {
		Name      string `json:"name"`
		Arguments string `json:"arguments"`
	} `json:"function"`
}

type chatUsage struct {
	Prompt     int `json:"prompt_tokens"`
	Completion int `json:"completion_tokens"`
	Total      int `json:"total_tokens"`
}

type chatChoice struct {
	Index   int             `json:"index"`
	Message *chatMessageOut `json:"message,omitempty"`
	Delta   any             `json:"delta,omitempty"`
	Finish  *string         `json:"finish_reason"`
}

type chatOut struct {
	ID      string       `json:"id"`
	Object  string       `json:"object"`
	Created int64        `json:"created"`
	Model   string       `json:"model"`
	Choices []chatChoice `json:"choices"`
	Usage   *chatUsage   `json:"usage,omitempty"`
}

// message is the answer as a message of this dialect.
func (r *Reply) message(stream bool) *chatMessageOut {
	out := &chatMessageOut{Role: "assistant"}
	var text strings.Builder
	for _, p := range r.Answer.Parts {
		switch p.Kind {
		case Text:
			text.WriteString(p.Text)
		case Reasoning:
			out.Reasoning += p.Text
		case ToolCall:
			c := chatCall{ID: p.ID, Type: "function"}
			c.Function.Name, c.Function.Arguments = p.Name, string(p.Arguments)
			if stream {
				n := len(out.Calls)
				c.Index = &n
			}
			out.Calls = append(out.Calls, c)
		}
	}
	if text.Len() > 0 || len(out.Calls) == 0 {
		content := text.String()
		out.Content = &content
	}
	return out
}

func (r *Reply) usage() *chatUsage { return &chatUsage{r.Prompt, r.Output, r.Prompt + r.Output} }

// Chat is the answer in one piece.
func (r *Reply) Chat() []byte {
	return encode(chatOut{r.ID, "chat.completion", r.Created, r.Model,
		[]chatChoice{{Message: r.message(false), Finish: &r.Finish}}, r.usage()})
}

// ChatStream is the answer as a stream of events. It is made after the answer was sampled: a call that a program could
// act on before it is recorded might never be trained.
func (r *Reply) ChatStream(usage bool) []byte {
	var b bytes.Buffer
	event := func(choices []chatChoice, u *chatUsage) {
		b.WriteString("data: ")
		b.Write(encode(chatOut{r.ID, "chat.completion.chunk", r.Created, r.Model, choices, u}))
		b.WriteString("\n\n")
	}
	event([]chatChoice{{Delta: r.message(true)}}, nil)
	event([]chatChoice{{Delta: struct{}{}, Finish: &r.Finish}}, nil)
	if usage {
		event([]chatChoice{}, r.usage())
	}
	b.WriteString("data: [DONE]\n\n")
	return b.Bytes()
}
