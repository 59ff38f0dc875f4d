// Package transcript turns the recorded groups of a run into text: the conversation that an environment gave, or the
// decoded tokens.
package transcript

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/recipe-rl/recipe/engine/printable"
	"github.com/recipe-rl/recipe/sdk/trajectory"
)

// Masked is the mask of a token that is not trained.
const Masked = -100

const (
	longest     = 100_000 // bytes of a message
	maxMessages = 500
)

// What a group has at most: a small value takes many times its size in memory. A group of 16 completions of 32,768
// tokens with 8 alternatives for each has 11 million values and a million lists.
const (
	maxObjects = 1 << 18
	maxLists   = 1 << 22
	maxValues  = 1 << 24
)

// Parse reads a group, whose masks must fit its tokens: the record is a file that anything may have written.
func Parse(body []byte) (*trajectory.Group, error) {
	if err := count(body); err != nil {
		return nil, err
	}
	var g trajectory.Group
	if err := json.Unmarshal(body, &g); err != nil {
		return nil, err
	}
	if len(g.Masks) != len(g.Tokens) {
		return nil, fmt.Errorf("it has %d sequences and %d masks", len(g.Tokens), len(g.Masks))
	}
	for i := range g.Tokens {
		if len(g.Masks[i]) != len(g.Tokens[i]) {
			return nil, fmt.Errorf("sequence %d has %d tokens and %d masks", i, len(g.Tokens[i]), len(g.Masks[i]))
		}
	}
	return &g, nil
}

// count refuses JSON of too many parts before memory is taken for them.
func count(body []byte) error {
	objects, lists, values := 0, 0, 0
	for i := 0; i < len(body); i++ {
		switch body[i] {
		case '{':
			objects++
		case '[':
			lists++
		case ',':
			values++
		case '"':
			for i++; i < len(body) && body[i] != '"'; i++ {
				if body[i] == '\\' {
					i++
				}
			}
		}
	}
	for _, c := range []struct {
		what       string
		have, most int
	}{{"objects", objects, maxObjects}, {"lists", lists, maxLists}, {"values", values, maxValues}} {
		if c.have > c.most {
			return fmt.Errorf("it has %d %s, and at most %d are read", c.have, c.what, c.most)
		}
	}
	return nil
}

// Transcript is the text of one group.
type Transcript struct {
	group  *trajectory.Group
	pieces *Tokenizer // nil: unknown
	chats  [][]Message
}

// Of makes the transcript of a group. Without a tokenizer, the ids of tokens stand for their text.
func Of(g *trajectory.Group, t *Tokenizer) *Transcript {
	return &Transcript{group: g, pieces: t, chats: conversations(g)}
}

// Piece returns the text of one token, safe to show.
func (t *Transcript) Piece(id int) string {
	if t.pieces == nil {
		return fmt.Sprintf("[%d]", id)
	}
	return printable.Text(printable.Limit(t.pieces.piece(id), 2000))
}

func (t *Transcript) text(ids []int) string {
	if t.pieces == nil {
		return fmt.Sprintf("%v", ids)
	}
	return t.pieces.text(ids)
}

// Messages returns the conversation of a sequence; without one, what was trained and what was not, in turns. Its texts
// are safe to show.
func (t *Transcript) Messages(i int) []Message {
	out := t.conversation(i)
	if len(out) > maxMessages {
		out = append([]Message{{"note", fmt.Sprintf("%d messages are left out", len(out)-maxMessages)}},
			out[len(out)-maxMessages:]...)
	}
	for k := range out {
		out[k].Role = printable.Text(printable.Limit(out[k].Role, 40))
		out[k].Text = printable.Text(printable.Limit(out[k].Text, longest))
	}
	return out
}

func (t *Transcript) conversation(i int) []Message {
	if i < len(t.chats) && len(t.chats[i]) > 0 {
		return t.chats[i]
	}
	return t.turns(i)
}

func (t *Transcript) turns(i int) (out []Message) {
	tokens, masks := t.group.Tokens[i], t.group.Masks[i]
	for from := 0; from < len(tokens); {
		to, trained := from+1, masks[from] != Masked
		for to < len(tokens) && (masks[to] != Masked) == trained {
			to++
		}
		role := "context"
		switch {
		case trained:
			role = "completion"
		case from == 0:
			role = "prompt"
		}
		out = append(out, Message{role, t.text(tokens[from:to])})
		from = to
	}
	return out
}

// Texts returns everything before the last message, and the last message, as they were written.
func (t *Transcript) Texts(i int) (prompt, completion string) {
	messages := t.conversation(i)
	if len(messages) == 0 {
		return "", ""
	}
	var before []string
	for _, m := range messages[:len(messages)-1] {
		before = append(before, m.Text)
	}
	return strings.Join(before, "\n"), messages[len(messages)-1].Text
}

// Shared counts the messages at the beginning that all completions have in common. Each keeps its last one.
func Shared(all [][]Message) int {
	if len(all) == 0 {
		return 0
	}
	n := max(len(all[0])-1, 0)
	for _, list := range all[1:] {
		n = min(n, max(len(list)-1, 0))
		for i := range n {
			if list[i] != all[0][i] {
				n = i
				break
			}
		}
	}
	return n
}
