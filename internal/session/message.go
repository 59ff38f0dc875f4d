// Package session keeps what a program asks of a policy: a tree of its calls, in the tokens that the engine received
// and sampled. The program knows nothing of it. It sends conversations, as its dialect of HTTP has them; a call that
// continues an earlier one continues its tokens, so that what is trained is what was sampled.
package session

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"hash"
	"strings"
)

// Message is one turn of a conversation, in a form that all dialects have in common.
type Message struct {
	Role  string `json:"role"` // system, user, assistant or tool
	Parts []Part `json:"parts"`
}

// PartKind describes what a part of a message is.
type PartKind string

// Kinds of parts.
const (
	Text       PartKind = "text"
	Reasoning  PartKind = "reasoning"   // of the model, before its answer
	ToolCall   PartKind = "tool_call"   // of the model
	ToolResult PartKind = "tool_result" // of a call
)

// Part is a part of a message.
type Part struct {
	Kind      PartKind        `json:"kind"`
	Text      string          `json:"text,omitempty"`      // of all kinds but ToolCall
	ID        string          `json:"id,omitempty"`        // of ToolCall, and of the call that a ToolResult belongs to
	Name      string          `json:"name,omitempty"`      // of the function of a ToolCall
	Arguments json.RawMessage `json:"arguments,omitempty"` // of a ToolCall: an object
}

// Key stands for a conversation: two conversations have one key if a program means the same by them.
type Key [sha256.Size]byte

// keys returns the key of each beginning of a conversation: keys[i] is that of the first i messages. Programs do not
// repeat a conversation byte for byte, so what they change is left out: space around texts, the division of a text into
// parts, reasoning, the names of calls (the order of the calls counts instead), and the order and spacing of arguments.
func keys(root Key, messages []Message) []Key {
	out := make([]Key, 1, len(messages)+1)
	out[0] = root
	calls := map[string]int{} // by name: which call of the conversation it is
	for _, m := range messages {
		h := sha256.New()
		previous := out[len(out)-1]
		h.Write(previous[:])
		m.write(h, calls)
		var k Key
		h.Sum(k[:0])
		out = append(out, k)
	}
	return out
}

// write feeds a hash with what a message means.
func (m Message) write(h hash.Hash, calls map[string]int) {
	role := m.Role
	if role == "developer" { // OpenAI's later name
		role = "system"
	}
	writeText(h, role)
	var text strings.Builder
	for _, p := range m.Parts {
		switch p.Kind {
		case Text:
			text.WriteString(p.Text)
		case ToolCall:
			calls[p.ID] = len(calls)
			writeText(h, "call", p.Name, canonical(p.Arguments))
		case ToolResult:
			n, known := calls[p.ID]
			if !known {
				n = -1
			}
			_ = binary.Write(h, binary.LittleEndian, int64(n)) // a hash never fails
			writeText(h, "result", strings.TrimSpace(p.Text))
		}
	}
	writeText(h, strings.TrimSpace(text.String()))
}

// writeText feeds a hash with texts, each with its length, so that no two lists of texts are the same to it.
func writeText(h hash.Hash, texts ...string) {
	for _, t := range texts {
		_ = binary.Write(h, binary.LittleEndian, int64(len(t))) // a hash never fails
		_, _ = h.Write([]byte(t))
	}
}

// canonical is JSON with its keys in order and without space. Numbers keep their digits; what is no JSON, or
// more of it than a session reads, stays as it is.
func canonical(raw json.RawMessage) string {
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	var v any
	if checkSize(raw) != nil || d.Decode(&v) != nil || d.More() {
		return string(raw)
	}
	out, err := json.Marshal(v)
	if err != nil {
		return string(raw)
	}
	return string(out)
}

// rootKey stands for what comes before the first message: the tools and other variables of the chat template.
func rootKey(tools, variables json.RawMessage) Key {
	h := sha256.New()
	writeText(h, canonical(tools), canonical(variables))
	var k Key
	h.Sum(k[:0])
	return k
}
