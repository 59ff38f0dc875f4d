package transcript

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/recipe-rl/recipe/sdk/trajectory"
)

// Message is one turn of a conversation.
type Message struct {
	Role string `json:"role"`
	Text string `json:"text"`
}

// conversations reads the messages of a group: a list for each sequence. Content may be text or a list of parts.
func conversations(g *trajectory.Group) [][]Message {
	var lists [][]struct {
		Role      any `json:"role"`
		Content   any `json:"content"`
		ToolCalls any `json:"tool_calls"`
	}
	if len(g.Messages) == 0 || json.Unmarshal(g.Messages, &lists) != nil || len(lists) != len(g.Tokens) {
		return nil
	}
	out := make([][]Message, len(lists))
	for i, list := range lists {
		for _, m := range list {
			text := contentText(m.Content)
			if m.ToolCalls != nil {
				calls, _ := json.Marshal(m.ToolCalls) // it came from JSON
				text = strings.TrimSpace(text + "\n" + string(calls))
			}
			out[i] = append(out[i], Message{fmt.Sprint(m.Role), text})
		}
	}
	return out
}

func contentText(content any) string {
	switch c := content.(type) {
	case nil:
		return ""
	case string:
		return c
	case []any:
		var parts []string
		for _, p := range c {
			if m, ok := p.(map[string]any); ok {
				if text, ok := m["text"].(string); ok {
					parts = append(parts, text)
					continue
				}
				parts = append(parts, fmt.Sprintf("[%v]", m["type"]))
			}
		}
		return strings.Join(parts, "\n")
	default:
		text, _ := json.Marshal(c) // it came from JSON
		return string(text)
	}
}
