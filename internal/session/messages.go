package session

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
)

// ParseMessages reads the body of /v1/messages, Anthropic's dialect. What a session cannot do is an error that names
// the field.
func ParseMessages(body []byte) (*Query, error) {
	fields, err := members(body)
	if err != nil {
		return nil, err
	}
	var in struct {
		Model    string          `json:"model"`
		Limit    int             `json:"max_tokens"`
		System   json.RawMessage `json:"system"`
		Messages []struct {
			Role    string          `json:"role"`
			Content json.RawMessage `json:"content"`
		} `json:"messages"`
		Tools  []anthropicTool `json:"tools"`
		Choice struct {
			Type string `json:"type"`
			Name string `json:"name"`
		} `json:"tool_choice"`
		Thinking struct {
			Type string `json:"type"`
		} `json:"thinking"`
		Stop   []string `json:"stop_sequences"`
		Stream bool     `json:"stream"`
	}
	if err := json.Unmarshal(body, &in); err != nil {
		return nil, fmt.Errorf("the body does not have the form of a request for messages: %w", err)
	}
	switch in.Choice.Type {
	case "", "auto", "none", "any":
		in.Choice.Name = ""
	case "tool":
	default:
		return nil, fmt.Errorf("tool_choice: want auto, none, any or tool, got %q", in.Choice.Type)
	}
	if len(in.Messages) == 0 {
		return nil, errors.New("messages: want at least one message, got none")
	}
	q := &Query{Model: in.Model, MaxTokens: in.Limit, Stream: in.Stream, Overruled: overruled(fields),
		Thinking: in.Thinking.Type != "" && in.Thinking.Type != "disabled"}
	if q.Stop, err = fewStops("stop_sequences", in.Stop); err != nil {
		return nil, err
	}
	if q.Tools, err = chatTools(in.Tools); err != nil {
		return nil, err
	}
	if in.Choice.Type == "any" || in.Choice.Type == "tool" {
		if q.Constraint, err = forced(q.Tools, in.Choice.Name); err != nil {
			return nil, err
		}
	}
	system, err := anthropicParts("system", in.System)
	if err != nil {
		return nil, fmt.Errorf("system: %w", err)
	}
	if len(system) > 0 {
		q.Messages = append(q.Messages, Message{Role: "system", Parts: system})
	}
	for i, m := range in.Messages {
		switch m.Role {
		case "system", "user", "assistant": // Claude Code has system messages among the others; they stay where they are
		default:
			return nil, fmt.Errorf("messages: message %d: role: want user, assistant or system, got %q", i, m.Role)
		}
		parts, err := anthropicParts(m.Role, m.Content)
		if err != nil {
			return nil, fmt.Errorf("messages: message %d: %w", i, err)
		}
		q.Messages = append(q.Messages, turns(m.Role, parts)...)
	}
	for _, m := range q.Messages {
		q.Raw = append(q.Raw, m.chat())
	}
	return q, nil
}

// turns divides a message of Anthropic's, in which results of tools and texts stand side by side, into one message a
// result and one for the texts.
func turns(role string, parts []Part) []Message {
	var out []Message
	var rest []Part
	for _, p := range parts {
		if p.Kind == ToolResult {
			out = append(out, Message{Role: "tool", Parts: []Part{p}})
		} else {
			rest = append(rest, p)
		}
	}
	if len(rest) > 0 || len(out) == 0 {
		out = append(out, Message{Role: role, Parts: rest})
	}
	return out
}

type anthropicTool struct {
	Type        string          `json:"type"`
	Name        string          `json:"name"`
	Description string          `json:"description"`
	Schema      json.RawMessage `json:"input_schema"`
}

// chatTools are tools in the form of Chat Completions. Tools that a provider would run itself, which have a type and no
// schema, are left out: nobody runs them here.
func chatTools(list []anthropicTool) (json.RawMessage, error) {
	type function struct {
		Name        string          `json:"name"`
		Description string          `json:"description,omitempty"`
		Parameters  json.RawMessage `json:"parameters"`
	}
	type tool struct {
		Type     string   `json:"type"`
		Function function `json:"function"`
	}
	var out []tool
	for i, t := range list {
		if t.Name == "" {
			return nil, fmt.Errorf("tools: tool %d has no name", i)
		}
		if null(t.Schema) {
			continue
		}
		out = append(out, tool{"function", function{t.Name, t.Description, t.Schema}})
	}
	if len(out) == 0 {
		return nil, nil
	}
	return encode(out), nil
}

// billing begins a text of Claude Code that is another one in each request and is not meant for a model.
const billing = "x-anthropic-billing-header:"

// anthropicParts reads a text, or a list of blocks.
func anthropicParts(role string, raw json.RawMessage) ([]Part, error) {
	var text string
	if null(raw) {
		return nil, nil
	}
	if json.Unmarshal(raw, &text) == nil {
		return []Part{{Kind: Text, Text: text}}, nil
	}
	var blocks []struct {
		Type     string          `json:"type"`
		Text     string          `json:"text"`
		Thinking string          `json:"thinking"`
		ID       string          `json:"id"`
		Name     string          `json:"name"`
		Input    json.RawMessage `json:"input"`
		Of       string          `json:"tool_use_id"`
		Content  json.RawMessage `json:"content"`
	}
	if err := json.Unmarshal(raw, &blocks); err != nil {
		return nil, errors.New("content: want a text or a list of blocks")
	}
	var out []Part
	for _, b := range blocks {
		switch b.Type {
		case "text":
			if role != "system" || !strings.HasPrefix(b.Text, billing) {
				out = append(out, Part{Kind: Text, Text: b.Text})
			}
		case "thinking":
			out = append(out, Part{Kind: Reasoning, Text: b.Thinking})
		case "redacted_thinking":
		case "tool_use":
			out = append(out, Part{Kind: ToolCall, ID: b.ID, Name: b.Name, Arguments: b.Input})
		case "tool_result":
			text, _, err := chatContent(b.Content) // no result is within another one
			if err != nil {
				return nil, fmt.Errorf("tool_result: %w", err)
			}
			out = append(out, Part{Kind: ToolResult, ID: b.Of, Text: text})
		default:
			return nil, fmt.Errorf("content: a session reads texts only, got a block of type %q", b.Type)
		}
	}
	return out, nil
}

// chat is a message in the form of Chat Completions.
func (m Message) chat() json.RawMessage {
	out := struct {
		Role      string     `json:"role"`
		Content   string     `json:"content"`
		Reasoning string     `json:"reasoning_content,omitempty"`
		Calls     []chatCall `json:"tool_calls,omitempty"`
		CallID    string     `json:"tool_call_id,omitempty"`
	}{Role: m.Role}
	var text strings.Builder
	for _, p := range m.Parts {
		switch p.Kind {
		case Text:
			text.WriteString(p.Text)
		case Reasoning:
			out.Reasoning += p.Text
		case ToolResult:
			text.WriteString(p.Text)
			out.CallID = p.ID
		case ToolCall:
			c := chatCall{ID: p.ID, Type: "function"}
			c.Function.Name, c.Function.Arguments = p.Name, string(p.Arguments)
			out.Calls = append(out.Calls, c)
		}
	}
	out.Content = text.String()
	return encode(out)
}

// stopReasons are Anthropic's names of why an answer ended.
var stopReasons = map[string]string{"stop": "end_turn", "length": "max_tokens", "tool_calls": "tool_use"}

type anthropicBlock struct {
	Type string  `json:"type"`
	Text *string `json:"text,omitempty"`
	// Thinking is reasoning; Signature is what Anthropic's servers know it by when it comes back.
	Thinking  *string          `json:"thinking,omitempty"`
	Signature *string          `json:"signature,omitempty"`
	ID        string           `json:"id,omitempty"`
	Name      string           `json:"name,omitempty"`
	Input     *json.RawMessage `json:"input,omitempty"`
}

type anthropicUsage struct {
	Input  int `json:"input_tokens"`
	Output int `json:"output_tokens"`
}

type anthropicMessage struct {
	ID      string           `json:"id"`
	Type    string           `json:"type"`
	Role    string           `json:"role"`
	Model   string           `json:"model"`
	Content []anthropicBlock `json:"content"`
	Reason  *string          `json:"stop_reason"`
	Stop    *string          `json:"stop_sequence"`
	Usage   anthropicUsage   `json:"usage"`
}

func (r *Reply) blocks() []anthropicBlock {
	out := []anthropicBlock{}
	for _, p := range r.Answer.Parts {
		switch p.Kind {
		case Reasoning:
			if r.Thinking { // other programs take the first block for a text
				signature := r.ID
				out = append(out, anthropicBlock{Type: "thinking", Thinking: &p.Text, Signature: &signature})
			}
		case Text:
			if p.Text != "" { // Anthropic's servers refuse an empty text when it comes back
				out = append(out, anthropicBlock{Type: "text", Text: &p.Text})
			}
		case ToolCall:
			out = append(out, anthropicBlock{Type: "tool_use", ID: p.ID, Name: p.Name, Input: &p.Arguments})
		}
	}
	return out
}

// Messages is the answer in one piece.
func (r *Reply) Messages() []byte {
	reason := stopReasons[r.Finish]
	return encode(anthropicMessage{ID: r.ID, Type: "message", Role: "assistant", Model: r.Model, Content: r.blocks(),
		Reason: &reason, Usage: anthropicUsage{r.Prompt, r.Output}})
}

// MessagesStream is the answer as a stream of events.
func (r *Reply) MessagesStream() []byte {
	var b bytes.Buffer
	event := func(kind string, members map[string]any) {
		members["type"] = kind
		fmt.Fprintf(&b, "event: %s\ndata: %s\n\n", kind, encode(members))
	}
	event("message_start", map[string]any{"message": anthropicMessage{ID: r.ID, Type: "message", Role: "assistant",
		Model: r.Model, Content: []anthropicBlock{}, Usage: anthropicUsage{r.Prompt, 0}}})
	for i, block := range r.blocks() {
		begin, none := block, ""
		var deltas []map[string]any
		switch {
		case block.Input != nil:
			empty := json.RawMessage(`{}`)
			begin.Input = &empty
			deltas = append(deltas, map[string]any{"type": "input_json_delta", "partial_json": string(*block.Input)})
		case block.Thinking != nil:
			begin.Thinking, begin.Signature = &none, &none
			deltas = append(deltas, map[string]any{"type": "thinking_delta", "thinking": block.Thinking},
				map[string]any{"type": "signature_delta", "signature": block.Signature})
		default:
			begin.Text = &none
			deltas = append(deltas, map[string]any{"type": "text_delta", "text": block.Text})
		}
		event("content_block_start", map[string]any{"index": i, "content_block": begin})
		for _, delta := range deltas {
			event("content_block_delta", map[string]any{"index": i, "delta": delta})
		}
		event("content_block_stop", map[string]any{"index": i})
	}
	event("message_delta", map[string]any{"delta": map[string]any{"stop_reason": stopReasons[r.Finish],
		"stop_sequence": nil},
		"usage": anthropicUsage{r.Prompt, r.Output}})
	event("message_stop", map[string]any{})
	return b.Bytes()
}
