// Package grpo trains the tiny language model with group relative policy optimization (Shao et al.
// 2024, "DeepSeekMath"): the completions of one prompt are compared with each other, and each
// token's probability is pushed up or down by how much better or worse its completion did. Token
// level advantages given by an environment replace the group's where present.
package grpo

import (
	"fmt"
	"math"

	"github.com/recipe-rl/recipe/plugins/tiny/lm"
)

// Sequence is one prompt with one completion, everything aligned with Tokens: index t speaks of
// token t. The shift between a token and the position that predicts it happens in this package.
type Sequence struct {
	Tokens []int32
	// Trained marks the tokens to learn from, holes allowed. The first token has nothing before it
	// and is never trained on.
	Trained []bool
	// LogProbs are those of the policy that sampled; values where Trained is false do not matter.
	// Nil lets the trainer compute them with its weights before the step.
	LogProbs []float64
	// Score is the environment's verdict.
	Score float64
	// Advantages override the group's: nil or empty for none, one value for every trained token, or
	// one a token (Layout says which).
	Advantages []float64
	// Continues marks a further part of the rollout of the sequence before it, with the same score.
	Continues bool
	// ZeroAdvantage trains on nothing of this sequence, yet leaves its score in the group.
	ZeroAdvantage bool
}

// Group is the completions of one prompt. A rollout is one sequence, or several that follow each other.
type Group struct {
	// Name says in errors where the group comes from.
	Name      string
	Sequences []Sequence
	// Age reports whether the trainer's weights are those that sampled the group.
	Age Age
}

// Age is how a group's weights stand to the trainer's.
type Age int

// A group is fresh when the very weights that are to be trained have sampled it, and stale when others have.
const (
	UnknownAge Age = iota
	Fresh
	Stale
)

// Validate reports the first thing about a group that cannot be trained on: what was expected and
// what was given. Whoever accepts groups calls it, so that a sender hears of its mistake at once.
func (g *Group) Validate(model lm.Config, layout Layout) error {
	if len(g.Sequences) == 0 {
		return fmt.Errorf("group %q: want at least one sequence, got none", g.Name)
	}
	for i := range g.Sequences {
		s := &g.Sequences[i]
		if err := s.validate(model, layout); err != nil {
			return fmt.Errorf("group %q, sequence %d: %w", g.Name, i, err)
		}
		if s.Continues && (i == 0 || s.Score != g.Sequences[i-1].Score) {
			return fmt.Errorf("group %q, sequence %d is a part of the rollout of the sequence before it: want its score", g.Name,
				i)
		}
	}
	return nil
}

func (s *Sequence) validate(model lm.Config, layout Layout) error {
	if err := model.CheckTokens(s.Tokens); err != nil {
		return err
	}
	if len(s.Trained) != len(s.Tokens) {
		return fmt.Errorf("masks: want one a token (%d), got %d", len(s.Tokens), len(s.Trained))
	}
	for t, id := range s.Tokens {
		if s.trains(t) && int(id) >= model.Vocabulary {
			return fmt.Errorf("token %d, a byte, at position %d: the model reads it and cannot learn to write it", id, t)
		}
	}
	if !sane(s.Score) {
		return fmt.Errorf("score: want a finite number between -%.0e and %.0e, got %v", largest, largest, s.Score)
	}
	if err := s.validateLogProbs(); err != nil {
		return err
	}
	return s.validateAdvantages(layout)
}

func (s *Sequence) validateLogProbs() error {
	if s.LogProbs == nil {
		return nil
	}
	if len(s.LogProbs) != len(s.Tokens) {
		return fmt.Errorf("log-probabilities: want one a token (%d), got %d", len(s.Tokens), len(s.LogProbs))
	}
	for t, l := range s.LogProbs {
		// Rounding may lift a certain token a little above 0.
		if s.trains(t) && (!finite(l) || l > 1e-3) {
			return fmt.Errorf("log-probability at token %d: want a finite number of at most 0, got %v", t, l)
		}
	}
	return nil
}

func (s *Sequence) validateAdvantages(layout Layout) error {
	n, want := len(s.Advantages), len(s.Tokens)
	if layout == ResponseLayout {
		want = s.maskedIn()
	}
	if n > 1 && n != want {
		return fmt.Errorf("advantages: want none, one, or one a token of the %s layout (%d), got %d", layout, want, n)
	}
	for t, a := range s.Advantages {
		if !sane(a) {
			return fmt.Errorf("advantage %d: want a finite number between -%.0e and %.0e, got %v", t, largest, largest,
				a)
		}
	}
	return nil
}

// rollouts counts the group's rollouts.
func (g *Group) rollouts() (n int) {
	for i := range g.Sequences {
		if !g.Sequences[i].Continues {
			n++
		}
	}
	return n
}

// trains reports whether token t is learned from.
func (s *Sequence) trains(t int) bool { return t > 0 && s.Trained[t] }

// maskedIn counts the tokens that the mask admits, as a sender counts them.
func (s *Sequence) maskedIn() (n int) {
	for _, m := range s.Trained {
		if m {
			n++
		}
	}
	return n
}

// largest bounds scores and advantages: the squares of 10^8 such numbers can be added in float32 without overflow.
const largest = 1e15

func sane(x float64) bool { return math.Abs(x) <= largest } // false for NaN, too

func finite(x float64) bool { return !math.IsNaN(x) && !math.IsInf(x, 0) }
