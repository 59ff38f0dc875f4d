package ui

import (
	"fmt"
	"math"
	"strings"

	"github.com/recipe-rl/recipe/sdk/samples"
	"github.com/recipe-rl/recipe/sdk/trajectory"
)

// masked is the mask of a token that is not trained.
const masked = -100

// columns are the numbers of one sequence, for its trained tokens in order.
type columns struct {
	positions  []int
	sampler    []float64 // log-probabilities; NaN: unknown
	logprobs   []float32 // the trainer's; nil: unknown
	advantages []float32 // nil: unknown
}

// columnsOf lays what a trainer computed over the sequences of a group. Advantages that the environment gave stand in
// where the trainer reported none. Lists of another length than the trained tokens are ignored.
func columnsOf(g *trajectory.Group, computed *samples.Computed) []columns {
	out, total := make([]columns, len(g.Tokens)), 0
	for i := range g.Tokens {
		for t := 1; t < len(g.Tokens[i]); t++ {
			if g.Masks[i][t] == masked {
				continue
			}
			out[i].positions = append(out[i].positions, t)
			lp := math.NaN()
			if i < len(g.InferenceLogprobs) && t < len(g.InferenceLogprobs[i]) && g.InferenceLogprobs[i][t] <= 0 {
				lp = g.InferenceLogprobs[i][t]
			}
			out[i].sampler = append(out[i].sampler, lp)
		}
		total += len(out[i].positions)
	}
	var logprobs, advantages []float32
	if computed != nil {
		logprobs, advantages = samples.Floats(computed.Logprobs), samples.Floats(computed.Advantages)
	}
	at := 0
	for i := range out {
		n := len(out[i].positions)
		if len(logprobs) == total {
			out[i].logprobs = logprobs[at : at+n]
		}
		switch {
		case len(advantages) == total:
			out[i].advantages = advantages[at : at+n]
		case i < len(g.Advantages):
			out[i].advantages = given(g.Advantages[i], out[i].positions, len(g.Tokens[i]))
		}
		at += n
	}
	return out
}

// given are advantages that an environment sent: one for all trained tokens, or one a token.
func given(list []float64, positions []int, tokens int) []float32 {
	if len(list) != 1 && len(list) != tokens {
		return nil
	}
	out := make([]float32, len(positions))
	for i, t := range positions {
		if len(list) == 1 {
			t = 0
		}
		out[i] = float32(list[t])
	}
	return out
}

// mismatch is the mean distance of the sampler's and the trainer's log-probabilities; NaN when it is unknown.
func (c *columns) mismatch() float64 {
	sum, n := 0.0, 0
	for i, lp := range c.logprobs {
		if !math.IsNaN(c.sampler[i]) {
			sum, n = sum+math.Abs(float64(lp)-c.sampler[i]), n+1
		}
	}
	if n == 0 {
		return math.NaN()
	}
	return sum / float64(n)
}

// reading turns a group into text.
type reading struct {
	group  *trajectory.Group
	pieces *tokenizer // nil: unknown
	chats  [][]message
}

func (r *run) reading(g *trajectory.Group) *reading {
	return &reading{group: g, pieces: r.tokenizer(), chats: conversations(g)}
}

// text is a run of tokens.
func (v *reading) text(ids []int) string {
	if v.pieces == nil {
		return fmt.Sprintf("%v", ids)
	}
	return v.pieces.text(ids)
}

// messages are the conversation of a sequence; without one, what was trained and what was not, in turns.
func (v *reading) messages(i int) []message {
	var out []message
	if i < len(v.chats) && len(v.chats[i]) > 0 {
		out = v.chats[i]
	} else {
		out = v.turns(i)
	}
	if len(out) > maxMessages {
		out = append([]message{{"note", fmt.Sprintf("%d messages are left out", len(out)-maxMessages)}},
			out[len(out)-maxMessages:]...)
	}
	for k := range out {
		out[k].Role, out[k].Text = plain(limit(out[k].Role, 40)), plain(limit(out[k].Text, longText))
	}
	return out
}

func (v *reading) turns(i int) (out []message) {
	tokens, masks := v.group.Tokens[i], v.group.Masks[i]
	for from := 0; from < len(tokens); {
		to, trained := from+1, masks[from] != masked
		for to < len(tokens) && (masks[to] != masked) == trained {
			to++
		}
		role := "context"
		switch {
		case trained:
			role = "completion"
		case from == 0:
			role = "prompt"
		}
		out = append(out, message{role, v.text(tokens[from:to])})
		from = to
	}
	return out
}

// texts are everything before the last message, and the last message.
func (v *reading) texts(i int) (prompt, completion string) {
	list := v.chats
	var messages []message
	if i < len(list) && len(list[i]) > 0 {
		messages = list[i]
	} else {
		messages = v.turns(i)
	}
	if len(messages) == 0 {
		return "", ""
	}
	var before []string
	for _, m := range messages[:len(messages)-1] {
		before = append(before, m.Text)
	}
	return strings.Join(before, "\n"), messages[len(messages)-1].Text
}

// tokens are the tokens of a sequence with all that is known of them.
func (v *reading) tokens(i int, c columns) []tokenRow {
	ids := v.group.Tokens[i]
	out := make([]tokenRow, len(ids))
	for t, id := range ids {
		out[t] = tokenRow{ID: id, Text: fmt.Sprintf("[%d]", id)}
		if v.pieces != nil {
			out[t].Text = plain(limit(v.pieces.piece(id), 2000))
		}
	}
	for k, t := range c.positions {
		out[t].Trained = true
		sampler := number(c.sampler[k])
		out[t].Sampler = &sampler
		if k < len(c.logprobs) {
			lp := number(c.logprobs[k])
			out[t].Trainer = &lp
		}
		if k < len(c.advantages) {
			a := number(c.advantages[k])
			out[t].Advantage = &a
		}
	}
	v.versions(i, out)
	return out
}

// versions says which policy version sampled each trained token: by the spans that the environment gave, else when one
// version sampled the whole group.
func (v *reading) versions(i int, out []tokenRow) {
	var spans []trajectory.VersionSpan
	if i < len(v.group.Overrides) {
		spans = spansOf(v.group.Overrides[i][trajectory.OverrideVersions])
	}
	if p := v.group.PolicyVersion; len(spans) == 0 && p != nil && p.Min == p.Max {
		spans = []trajectory.VersionSpan{{Version: p.Min, Start: 0, End: len(out)}}
	}
	for _, s := range spans {
		for t := max(s.Start, 0); t < min(s.End, len(out)); t++ {
			if out[t].Trained {
				version := s.Version
				out[t].Version = &version
			}
		}
	}
}
