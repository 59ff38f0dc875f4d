package session

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
)

// ParseResponses reads the body of /v1/responses, OpenAI's later dialect. What a session cannot do is an error that
// names the field.
func ParseResponses(body []byte) (*Query, error) {
	fields, err := members(body)
	if err != nil {
		return nil, err
	}
	var in struct {
		Model        string          `json:"model"`
		Instructions string          `json:"instructions"`
		Input        json.RawMessage `json:"input"`
		Limit        int             `json:"max_output_tokens"`
		Stream       bool            `json:"stream"`
		Tools        []responsesTool `json:"tools"`
		Previous     string          `json:"previous_response_id"`
		Background   bool            `json:"background"`
		Text         struct {
			Format format `json:"format"`
		} `json:"text"`
	}
	if err := json.Unmarshal(body, &in); err != nil {
		return nil, fmt.Errorf("the body does not have the form of a request for a response: %w", err)
	}
	switch {
	case in.Previous != "":
		return nil, errors.New("previous_response_id: a session stores no input; send all of it (store: false)")
	case in.Background:
		return nil, errors.New("background: a session answers at once")
	}
	q := &Query{Model: in.Model, MaxTokens: in.Limit, Stream: in.Stream, Overruled: overruled(fields)}
	if q.Tools, err = chatTools(functions(in.Tools)); err != nil {
		return nil, err
	}
	if q.Constraint, err = forcedChoice(fields["tool_choice"], q.Tools); q.Constraint == nil && err == nil {
		q.Constraint, err = in.Text.Format.constraint("text.format")
	}
	if err != nil {
		return nil, err
	}
	if in.Instructions != "" {
		q.Messages = append(q.Messages, Message{Role: "system", Parts: []Part{{Kind: Text, Text: in.Instructions}}})
	}
	if err := q.addItems(in.Input); err != nil {
		return nil, err
	}
	for _, m := range q.Messages {
		q.Raw = append(q.Raw, m.chat())
	}
	return q, nil
}

type responsesTool struct {
	Type        string          `json:"type"`
	Name        string          `json:"name"`
	Description string          `json:"description"`
	Parameters  json.RawMessage `json:"parameters"`
	Tools       []responsesTool `json:"tools"` // of a namespace
}

// functions are the tools that are functions, also those within a namespace. Tools that a provider would run itself,
// and tools that take a text in a grammar, are left out.
func functions(list []responsesTool) []anthropicTool {
	var out []anthropicTool
	for _, t := range list {
		switch t.Type {
		case "function":
			if null(t.Parameters) {
				t.Parameters = json.RawMessage(`{"type":"object","properties":{}}`)
			}
			out = append(out, anthropicTool{Name: t.Name, Description: t.Description, Schema: t.Parameters})
		case "namespace":
			out = append(out, functions(t.Tools)...)
		}
	}
	return out
}

type responsesItem struct {
	Type      string          `json:"type"`
	Role      string          `json:"role"`
	Content   json.RawMessage `json:"content"`
	CallID    string          `json:"call_id"`
	Name      string          `json:"name"`
	Arguments string          `json:"arguments"`
	Output    json.RawMessage `json:"output"`
}

// addItems reads a text, or a list of items. What the model said in several items is one message.
func (q *Query) addItems(raw json.RawMessage) error {
	var text string
	if !null(raw) && json.Unmarshal(raw, &text) == nil {
		q.Messages = append(q.Messages, Message{Role: "user", Parts: []Part{{Kind: Text, Text: text}}})
		return nil
	}
	var items []responsesItem
	if null(raw) || json.Unmarshal(raw, &items) != nil || len(items) == 0 {
		return errors.New("input: want a text or a list of at least one item")
	}
	for i, item := range items {
		m, err := item.message()
		if err != nil {
			return fmt.Errorf("input: item %d: %w", i, err)
		}
		if n := len(q.Messages); n > 0 && m.Role == "assistant" && q.Messages[n-1].Role == "assistant" {
			q.Messages[n-1].Parts = append(q.Messages[n-1].Parts, m.Parts...)
			continue
		}
		q.Messages = append(q.Messages, m)
	}
	return nil
}

func (item responsesItem) message() (Message, error) {
	switch item.Type {
	case "", "message":
		switch item.Role {
		case "system", "developer", "user", "assistant":
		default:
			return Message{}, fmt.Errorf("role: want system, developer, user or assistant, got %q", item.Role)
		}
		text, err := responsesText(item.Content)
		return Message{Role: item.Role, Parts: []Part{{Kind: Text, Text: text}}}, err
	case "reasoning":
		return Message{Role: "assistant"}, nil
	case "function_call":
		if err := readable(item.Arguments); err != nil {
			return Message{}, err
		}
		return Message{Role: "assistant", Parts: []Part{{Kind: ToolCall, ID: item.CallID, Name: item.Name,
			Arguments: json.RawMessage(item.Arguments)}}}, nil
	case "function_call_output":
		text, err := responsesText(item.Output)
		return Message{Role: "tool", Parts: []Part{{Kind: ToolResult, ID: item.CallID, Text: text}}}, err
	}
	return Message{}, fmt.Errorf("a session reads messages and calls of functions, got an item of type %q", item.Type)
}

// responsesText reads a text, or a list of parts that are texts.
func responsesText(raw json.RawMessage) (string, error) {
	var text string
	if null(raw) || json.Unmarshal(raw, &text) == nil {
		return text, nil
	}
	var parts []struct {
		Type string `json:"type"`
		Text string `json:"text"`
	}
	if json.Unmarshal(raw, &parts) != nil {
		return "", errors.New("content: want a text or a list of parts")
	}
	var b strings.Builder
	for _, p := range parts {
		switch p.Type {
		case "text", "input_text", "output_text":
			b.WriteString(p.Text)
		default:
			return "", fmt.Errorf("content: a session reads texts only, got a part of type %q", p.Type)
		}
	}
	return b.String(), nil
}

type responsesContent struct {
	Type        string `json:"type"`
	Text        string `json:"text"`
	Annotations []any  `json:"annotations,omitzero"`
}

type responsesOutput struct {
	ID        string              `json:"id"`
	Type      string              `json:"type"`
	Status    string              `json:"status"`
	Role      string              `json:"role,omitempty"`
	Content   *[]responsesContent `json:"content,omitempty"`
	Summary   *[]any              `json:"summary,omitempty"` // of a reasoning
	CallID    string              `json:"call_id,omitempty"`
	Name      string              `json:"name,omitempty"`
	Arguments *string             `json:"arguments,omitempty"`
}

type responsesUsage struct {
	Input        int            `json:"input_tokens"`
	InputDetails map[string]int `json:"input_tokens_details"`
	Output       int            `json:"output_tokens"`
	Details      map[string]int `json:"output_tokens_details"`
	Total        int            `json:"total_tokens"`
}

type response struct {
	ID         string            `json:"id"`
	Object     string            `json:"object"`
	Created    int64             `json:"created_at"`
	Status     string            `json:"status"`
	Model      string            `json:"model"`
	Output     []responsesOutput `json:"output"`
	Incomplete map[string]string `json:"incomplete_details"`
	Error      *string           `json:"error"`
	Parallel   bool              `json:"parallel_tool_calls"`
	Choice     string            `json:"tool_choice"`
	Tools      []any             `json:"tools"`
	Store      bool              `json:"store"`
	Usage      *responsesUsage   `json:"usage"`
}

// items are the parts of the answer, each an item.
func (r *Reply) items() []responsesOutput {
	out := []responsesOutput{}
	for i, p := range r.Answer.Parts {
		item := responsesOutput{ID: fmt.Sprintf("%s_%d", r.ID, i), Status: "completed"}
		switch p.Kind {
		case Reasoning:
			item.Type, item.Summary = "reasoning", &[]any{}
			item.Content = &[]responsesContent{{"reasoning_text", p.Text, nil}}
		case Text:
			item.Type, item.Role = "message", "assistant"
			item.Content = &[]responsesContent{{"output_text", p.Text, []any{}}}
		case ToolCall:
			arguments := string(p.Arguments)
			item.Type, item.CallID, item.Name, item.Arguments = "function_call", p.ID, p.Name, &arguments
		default:
			continue
		}
		out = append(out, item)
	}
	return out
}

func (r *Reply) response() response {
	out := response{ID: r.ID, Object: "response", Created: r.Created, Status: "completed", Model: r.Model,
		Output:   r.items(),
		Parallel: true, Choice: "auto", Tools: []any{}, Usage: &responsesUsage{r.Prompt, map[string]int{"cached_tokens": 0},
			r.Output, map[string]int{"reasoning_tokens": 0}, r.Prompt + r.Output}}
	if r.Finish == "length" {
		out.Status, out.Incomplete = "incomplete", map[string]string{"reason": "max_output_tokens"}
	}
	return out
}

// Responses is the answer in one piece.
func (r *Reply) Responses() []byte { return encode(r.response()) }

// ResponsesStream is the answer as a stream of events.
func (r *Reply) ResponsesStream() []byte {
	var b bytes.Buffer
	number := 0
	event := func(kind string, members map[string]any) {
		members["type"], members["sequence_number"] = kind, number
		number++
		fmt.Fprintf(&b, "event: %s\ndata: %s\n\n", kind, encode(members))
	}
	whole := r.response()
	begun := whole
	begun.Status, begun.Output, begun.Incomplete, begun.Usage = "in_progress", []responsesOutput{}, nil, nil
	event("response.created", map[string]any{"response": begun})
	event("response.in_progress", map[string]any{"response": begun})
	for i, item := range whole.Output {
		at := func(members map[string]any) map[string]any {
			members["output_index"], members["item_id"] = i, item.ID
			return members
		}
		empty, none := item, ""
		empty.Status = "in_progress"
		switch {
		case item.Type == "reasoning":
			text := (*item.Content)[0].Text
			empty.Content = &[]responsesContent{}
			event("response.output_item.added", map[string]any{"output_index": i, "item": empty})
			event("response.reasoning_text.delta", at(map[string]any{"content_index": 0, "delta": text}))
			event("response.reasoning_text.done", at(map[string]any{"content_index": 0, "text": text}))
		case item.Content != nil:
			content, blank := (*item.Content)[0], responsesContent{"output_text", "", []any{}}
			empty.Content = &[]responsesContent{}
			event("response.output_item.added", map[string]any{"output_index": i, "item": empty})
			event("response.content_part.added", at(map[string]any{"content_index": 0, "part": blank}))
			event("response.output_text.delta", at(map[string]any{"content_index": 0, "delta": content.Text,
				"logprobs": []any{}}))
			event("response.output_text.done", at(map[string]any{"content_index": 0, "text": content.Text, "logprobs": []any{}}))
			event("response.content_part.done", at(map[string]any{"content_index": 0, "part": content}))
		default:
			empty.Arguments = &none
			event("response.output_item.added", map[string]any{"output_index": i, "item": empty})
			event("response.function_call_arguments.delta", at(map[string]any{"delta": *item.Arguments}))
			event("response.function_call_arguments.done", at(map[string]any{"arguments": *item.Arguments, "name": item.Name}))
		}
		event("response.output_item.done", map[string]any{"output_index": i, "item": item})
	}
	event("response."+whole.Status, map[string]any{"response": whole})
	return b.Bytes()
}
