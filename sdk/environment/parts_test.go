package environment

import (
	"errors"
	"fmt"
	"testing"

	"github.com/recipe-rl/recipe/sdk/trajectory"
)

// part is a sequence of one token, which is a further part of the rollout before it or not.
func part(further bool, score float64, sampled int) sequence {
	s := sequence{part: further, score: score, sampled: sampled, conversation: []Message{{Role: "user", Content: "q"}}}
	s.read([]int{1})
	s.answered(Completion{Tokens: []int{2}, Logprobs: []float64{-1}, Finish: "stop"}, nil, nil)
	s.sampled = sampled
	return s
}

// What is counted of a group with rollouts in parts is counted in rollouts.
func TestPartsCountAsOneRollout(t *testing.T) {
	t.Parallel()
	failed := part(false, 0, 1)
	failed.failed = errors.New("no score")
	for _, test := range []struct {
		name        string
		sequences   []sequence
		rollouts    int
		scored      int
		informative bool
		numbers     string  // of rollouts on the wire
		mean        float64 // reward
		first       int     // the sequence that is shown
	}{
		{name: "one sequence each", sequences: []sequence{part(false, 1, 1), part(false, 0, 1)}, rollouts: 2, scored: 2,
			informative: true, numbers: "[<nil> <nil>]", mean: .5, first: 0},
		{name: "three and one", sequences: []sequence{part(false, 1, 1), part(true, 1, 5), part(true, 1, 2),
			part(false, 0, 9)}, rollouts: 2, scored: 2, informative: true, numbers: "[0 0 0 1]", mean: .5, first: 1},
		{name: "equal scores", sequences: []sequence{part(false, 1, 1), part(true, 1, 1), part(false, 1, 1)}, rollouts: 2,
			scored: 2, numbers: "[0 0 1]", mean: 1, first: 0},
		{name: "one rollout alone", sequences: []sequence{part(false, 1, 1), part(true, 1, 1)}, rollouts: 1, scored: 1,
			informative: true, numbers: "[0 0]", mean: 1, first: 0},
		{name: "one that failed", sequences: []sequence{part(false, 1, 1), part(true, 1, 1), part(false, 0, 1), failed},
			rollouts: 3, scored: 2, informative: true, numbers: "[0 0 1 2]", mean: .5, first: 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			r := &rolled{sequences: test.sequences}
			r.mask()
			if r.rollouts() != test.rollouts || r.scored() != test.scored || r.informative() != test.informative {
				t.Errorf("%d rollouts, %d with a score, informative %t", r.rollouts(), r.scored(), r.informative())
			}
			if r.first() != &r.sequences[test.first] {
				t.Errorf("the first is not sequence %d", test.first)
			}
			var numbers []any
			for _, o := range r.overrides() {
				numbers = append(numbers, o[trajectory.OverrideRollout])
			}
			if got := fmt.Sprint(numbers); got != test.numbers {
				t.Errorf("rollouts %s, want %s", got, test.numbers)
			}
			stats := newRolloutStats()
			stats.add(Task{Prompt: "q"}, r, true, false)
			values, _ := stats.take()
			if values["reward"] != test.mean || values["reward_sent"] != test.mean {
				t.Errorf("reward %v, of what was sent %v, want %v", values["reward"], values["reward_sent"], test.mean)
			}
			if last := r.sequences[len(r.sequences)-1]; last.failed != nil && last.score != test.mean {
				t.Errorf("the rollout that failed has the score %v, want the mean of the others", last.score)
			}
		})
	}
}
