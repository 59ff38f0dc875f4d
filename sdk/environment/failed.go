package environment

import (
	"slices"

	"github.com/recipe-rl/recipe/sdk/trajectory"
)

// settle masks the rollouts of a group that have failed, where at least so many have a score. It returns why, an
// unscored error, where they are fewer. Batches are counted in sequences, so a failed rollout keeps its place: nothing
// of it is trained on, and its score, the mean of the others, moves no baseline.
func (r *rolled) settle(least int, why error) error {
	if r.scored() >= least {
		r.mask()
		r.why = why
		return nil
	}
	return why
}

// scored counts the rollouts that have a score.
func (r *rolled) scored() int {
	n := 0
	for i := range r.sequences {
		if s := &r.sequences[i]; s.failed == nil && !s.part {
			n++
		}
	}
	return n
}

// mask takes what failed out of training.
func (r *rolled) mask() {
	sum, n, advantages := 0.0, 0, false
	for i := range r.sequences {
		if s := &r.sequences[i]; s.failed == nil {
			if !s.part {
				sum, n = sum+s.score, n+1
			}
			advantages = advantages || s.advantages != nil
		}
	}
	for i := range r.sequences {
		s := &r.sequences[i]
		if s.failed == nil {
			continue
		}
		if s.score = 0; n > 0 {
			s.score = sum / float64(n)
		}
		s.metrics, s.answers = nil, nil
		s.masks = slices.Repeat([]int{maskPrompt}, len(s.tokens))
		if s.advantages = nil; advantages {
			s.advantages = make([]float64, len(s.tokens))
		}
	}
}

// placeholder stands for a rollout that left no sequence: the start of what another one of its group has read.
func (s *sequence) placeholder(why error) sequence {
	out := sequence{agent: s.agent, failed: why, versions: s.versions, unknown: s.unknown,
		conversation: s.conversation[:min(1, len(s.conversation))]}
	out.read(s.tokens[:min(2, len(s.tokens))])
	return out
}

// informative reports whether the scores of a group differ by more than rounding.
func (r *rolled) informative() bool {
	var scores []float64
	for i := range r.sequences {
		if r.sequences[i].failed == nil {
			scores = append(scores, r.sequences[i].score)
		}
	}
	return r.rollouts() < 2 || !trajectory.EqualScores(scores)
}

// first is the first rollout that has a score, by the part with the most sampled tokens; nil when there is none.
func (r *rolled) first() *sequence {
	var found *sequence
	for i := range r.sequences {
		switch s := &r.sequences[i]; {
		case s.failed != nil:
		case found == nil, s.part && s.sampled > found.sampled:
			found = s
		case !s.part:
			return found
		}
	}
	return found
}
