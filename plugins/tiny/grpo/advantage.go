package grpo

import (
	"errors"
	"fmt"
	"math"
)

// Layout describes what the entries of a list of override advantages belong to.
type Layout string

// TokenLayout has one entry a token of the sequence; ResponseLayout one a trained token, in order.
const (
	TokenLayout    Layout = "token"
	ResponseLayout Layout = "response"
)

// Advantages configures how sequences get their advantages; DefaultAdvantages is the usual choice.
type Advantages struct {
	// Overrides uses the advantages that groups carry; otherwise they are counted and ignored.
	Overrides bool
	// Fallback gives sequences without an override the group's advantage; otherwise they are an
	// error.
	Fallback bool
	// WholeGroup uses overrides only where every sequence of the group has one.
	WholeGroup bool
	Layout     Layout
	// Deviation divides the group's advantage by the standard deviation of its scores.
	Deviation bool
	// SingleScore gives the only sequence of a group its score as advantage, rather than 0.
	SingleScore bool
	// Whiten brings advantages to mean 0 and deviation 1 over the trained tokens of the whole batch:
	// those of overrides only, or of all sequences if WhitenAll is set as well.
	Whiten, WhitenAll bool
	// Clip limits every advantage to [low, high] with low ≤ 0 ≤ high; nil for no limit.
	Clip *[2]float64
}

// DefaultAdvantages uses overrides where given and the group's normalized scores elsewhere.
func DefaultAdvantages() Advantages {
	return Advantages{Overrides: true, Fallback: true, Layout: TokenLayout, Deviation: true}
}

func (a *Advantages) validate() error {
	if a.Layout != TokenLayout && a.Layout != ResponseLayout {
		return fmt.Errorf("advantage layout: want %q or %q, got %q", TokenLayout, ResponseLayout, a.Layout)
	}
	if c := a.Clip; c != nil && (!finite(c[0]) || !finite(c[1]) || c[0] > 0 || c[1] < 0) {
		return fmt.Errorf("advantage clipping: want low ≤ 0 ≤ high, got %v", *c)
	}
	if a.WhitenAll && !a.Whiten {
		return errors.New("advantages: whitening of all sequences is set, whitening itself is not")
	}
	return nil
}

// advantageStats counts what became of a batch's advantages.
type advantageStats struct {
	overridden, ignored, zeroed, clipped int // sequences, sequences, sequences, tokens
	fallbackGroups, flatGroups           int
}

// assign gives every token of every sequence its advantage, 0 where nothing is trained.
func (a *Advantages) assign(groups []Group) ([][][]float64, advantageStats, error) {
	var stats advantageStats
	out := make([][][]float64, len(groups))
	given := make([][]bool, len(groups))
	for g := range groups {
		var err error
		if out[g], given[g], err = a.group(&groups[g], &stats); err != nil {
			return nil, stats, err
		}
	}
	if a.Whiten {
		a.whiten(groups, out, given)
	}
	for g := range groups {
		for i := range groups[g].Sequences {
			a.finish(&groups[g].Sequences[i], out[g][i], &stats)
		}
	}
	return out, stats, nil
}

func (a *Advantages) group(g *Group, stats *advantageStats) (out [][]float64, given []bool, err error) {
	baseline, flat := a.baseline(g)
	missing := 0
	for i := range g.Sequences {
		if len(g.Sequences[i].Advantages) == 0 {
			missing++
		}
	}
	use := a.Overrides && (missing == 0 || !a.WholeGroup)
	if !use {
		stats.ignored += len(g.Sequences) - missing
	}
	fallbacks := 0
	for i := range g.Sequences {
		s, values := &g.Sequences[i], make([]float64, len(g.Sequences[i].Tokens))
		overridden := use && len(s.Advantages) > 0
		switch {
		case overridden:
			stats.overridden++
			a.spread(s, values)
		case a.Fallback:
			fallbacks++
			fill(s, values, baseline[i])
		default:
			return nil, nil,
				fmt.Errorf("group %q, sequence %d carries no advantages and the fallback is off: send advantages or switch the "+
					"fallback to grpo on", g.Name, i)
		}
		out, given = append(out, values), append(given, overridden)
	}
	if fallbacks > 0 {
		stats.fallbackGroups++
		if flat {
			stats.flatGroups++
		}
	}
	return out, given, nil
}

// baseline is each sequence's score relative to its group; flat when all scores are equal.
func (a *Advantages) baseline(g *Group) (values []float64, flat bool) {
	n := g.rollouts()
	values = make([]float64, len(g.Sequences))
	if n == 1 {
		if a.SingleScore {
			for i := range values {
				values[i] = g.Sequences[i].Score
			}
		}
		return values, !a.SingleScore
	}
	var sum float64
	flat = true
	for i := range g.Sequences {
		if s := &g.Sequences[i]; !s.Continues {
			sum += s.Score
		}
		flat = flat && g.Sequences[i].Score == g.Sequences[0].Score
	}
	if flat {
		return values, true
	}
	var squares float64
	for i := range values {
		values[i] = g.Sequences[i].Score - sum/float64(n)
		if !g.Sequences[i].Continues {
			squares += values[i] * values[i]
		}
	}
	if a.Deviation {
		for i := range values {
			values[i] /= math.Sqrt(squares/float64(n-1)) + 1e-6
		}
	}
	return values, false
}

// spread lays a sequence's override over its tokens.
func (a *Advantages) spread(s *Sequence, out []float64) {
	if len(s.Advantages) == 1 {
		fill(s, out, s.Advantages[0])
		return
	}
	next := 0
	for t := range out {
		at := t
		if a.Layout == ResponseLayout {
			at = next
		}
		if s.Trained[t] {
			next++
		}
		if s.trains(t) {
			out[t] = s.Advantages[at]
		}
	}
}

func fill(s *Sequence, out []float64, value float64) {
	for t := range out {
		if s.trains(t) {
			out[t] = value
		}
	}
}

// whiten normalizes over the trained tokens in scope, of the whole batch.
func (a *Advantages) whiten(groups []Group, out [][][]float64, given [][]bool) {
	each := func(visit func(v *float64)) {
		for g := range groups {
			for i := range groups[g].Sequences {
				// A rollout that is alone in its group has nothing to say: whitening must not give it an advantage.
				alone := groups[g].rollouts() == 1 && !a.SingleScore
				if !given[g][i] && (!a.WhitenAll || alone) {
					continue
				}
				for t := range out[g][i] {
					if groups[g].Sequences[i].trains(t) {
						visit(&out[g][i][t])
					}
				}
			}
		}
	}
	var n, sum, squares float64
	each(func(v *float64) { n++; sum += *v })
	if n < 2 {
		return
	}
	mean := sum / n
	each(func(v *float64) { squares += (*v - mean) * (*v - mean) })
	deviation := math.Sqrt(squares/(n-1)) + 1e-8
	each(func(v *float64) { *v = (*v - mean) / deviation })
}

// finish clips and zeroes one sequence.
func (a *Advantages) finish(s *Sequence, values []float64, stats *advantageStats) {
	if s.ZeroAdvantage {
		stats.zeroed++
	}
	for t, v := range values {
		if a.Clip != nil {
			values[t] = min(max(v, a.Clip[0]), a.Clip[1])
			if values[t] != v {
				stats.clipped++
			}
		}
		if s.ZeroAdvantage {
			values[t] = 0
		}
	}
}
