package ui

import (
	"encoding/json"
	"math"

	"github.com/recipe-rl/recipe/engine/transcript"
	"github.com/recipe-rl/recipe/internal/samples"
	"github.com/recipe-rl/recipe/sdk/trajectory"
)

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
			if g.Masks[i][t] == transcript.Masked {
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

// reading is a group and its text.
type reading struct {
	*transcript.Transcript
	group *trajectory.Group
}

func (r *run) reading(g *trajectory.Group) *reading {
	return &reading{transcript.Of(g, r.pieces.Of(r.dir)), g}
}

// tokens are the tokens of a sequence with all that is known of them.
func (v *reading) tokens(i int, c columns) []tokenRow {
	ids := v.group.Tokens[i]
	out := make([]tokenRow, len(ids))
	for t, id := range ids {
		out[t] = tokenRow{ID: id, Text: v.Piece(id)}
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

func spansOf(v any) (out []trajectory.VersionSpan) {
	text, err := json.Marshal(v)
	if err != nil || json.Unmarshal(text, &out) != nil {
		return nil
	}
	return out
}
