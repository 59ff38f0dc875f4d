package gateway

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/recipe-rl/recipe/internal/hermes"
	"github.com/recipe-rl/recipe/internal/session"
)

// Sampled is an answer of the model, to be read by its engine.
type Sampled struct {
	Text      string          // without special tokens
	Prompt    []int32         // the last tokens of the prompt
	Output    []int32         // sampled
	Finish    string          // stop or length
	Tools     json.RawMessage // offered, in the form of Chat Completions; empty: none
	Variables json.RawMessage // of the chat template; empty: none
}

// Said is what an answer says.
type Said struct {
	Reasoning string
	Text      string
	Calls     []ToolCall
}

// ToolCall is a call of a tool.
type ToolCall struct {
	Name      string
	Arguments string // JSON
}

// ErrNotRead is the error of an engine that has no parser for what is asked: the gateway reads the answer itself.
var ErrNotRead = errors.New("the engine does not read answers")

const (
	readWithin = 30 * time.Second
	promptTail = 512 // tokens: whether the prompt ends within the model's reasoning
)

// read finds out what an answer says. Calls of tools that cannot be read stay text: they are never invented.
func (s *sessionCall) read(ctx context.Context, r Replica, a Sampled) (m session.Message, finish string, err error) {
	var said Said
	if c := s.q.Constraint; c != nil {
		said = readConstrained(a, c)
	} else if said, err = s.engineReads(ctx, r, a); errors.Is(err, ErrNotRead) {
		said, err = readHermes(a), nil
	}
	if err != nil {
		return m, "", err
	}
	m, finish = session.Message{Role: "assistant"}, a.Finish
	if said.Reasoning != "" {
		m.Parts = append(m.Parts, session.Part{Kind: session.Reasoning, Text: said.Reasoning})
	}
	unread := func(c ToolCall) bool {
		arguments := json.RawMessage(c.Arguments)
		return c.Name == "" || !session.Reads(arguments) || !json.Valid(arguments) || !object(arguments)
	}
	switch {
	case len(said.Calls) == 0:
	case a.Finish == "length" || slices.ContainsFunc(said.Calls, unread):
		m.Parts = append(m.Parts, session.Part{Kind: session.Text, Text: a.Text})
		return m, finish, nil
	default:
		if text := strings.TrimSpace(said.Text); text != "" {
			m.Parts = append(m.Parts, session.Part{Kind: session.Text, Text: text})
		}
		for _, c := range said.Calls {
			m.Parts = append(m.Parts, session.Part{Kind: session.ToolCall, ID: "call_" + rand.Text(), Name: c.Name,
				Arguments: json.RawMessage(c.Arguments)})
		}
		return m, "tool_calls", nil
	}
	if said.Reasoning == "" {
		said.Text = a.Text // as the engine decoded it
	}
	m.Parts = append(m.Parts, session.Part{Kind: session.Text, Text: said.Text})
	return m, finish, nil
}

// engineReads has the engine read the answer, by the parsers of its model.
func (s *sessionCall) engineReads(ctx context.Context, r Replica, a Sampled) (Said, error) {
	if s.g.cfg.Read == nil || len(a.Output) == 0 {
		return Said{}, ErrNotRead
	}
	ctx, cancel := context.WithTimeout(ctx, readWithin)
	defer cancel()
	said, err := s.g.cfg.Read(ctx, r, a)
	if err != nil && !errors.Is(err, ErrNotRead) {
		return said, &refusal{http.StatusBadGateway, "engine_failed",
			fmt.Sprintf("the inference engine has not read its answer: %v", err), 0}
	}
	return said, err
}

// readConstrained reads an answer that was forced to be a call, or has a form of its own.
func readConstrained(a Sampled, c *session.Constraint) Said {
	if c.Calls {
		if name, arguments, ok := session.ForcedCall(a.Text); ok {
			return Said{Calls: []ToolCall{{name, string(arguments)}}}
		}
	}
	return Said{Text: a.Text}
}

// readHermes reads calls in the form of Hermes and Qwen models.
func readHermes(a Sampled) Said {
	out := Said{Text: a.Text}
	if len(a.Tools) == 0 {
		return out
	}
	calls, around, err := hermes.Parse(a.Text)
	if err != nil || len(calls) == 0 {
		return out
	}
	out.Text = around
	for _, c := range calls {
		out.Calls = append(out.Calls, ToolCall{c.Name, string(c.Arguments)})
	}
	return out
}

// object reports whether JSON is an object.
func object(raw json.RawMessage) bool { return bytes.HasPrefix(bytes.TrimSpace(raw), []byte("{")) }
