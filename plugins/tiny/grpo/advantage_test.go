package grpo

import (
	"math"
	"strings"
	"testing"
)

// four is a sequence of four tokens of which the last three are trained.
func four(score float64, advantages ...float64) Sequence {
	return Sequence{Tokens: []int32{4, 5, 6, 7}, Trained: []bool{false, true, true, true}, Score: score,
		Advantages: advantages}
}

func TestAssignAdvantages(t *testing.T) {
	t.Parallel()
	hole := four(0, 9, 1, 2, 3)
	hole.Trained = []bool{false, true, false, true}
	response := hole
	response.Advantages = []float64{7, 8}
	zeroed := four(1)
	zeroed.ZeroAdvantage = true
	r := 1 / (math.Sqrt(1.0/3) + 1e-6) // scores 1 0 0 1: mean ½, deviation √⅓
	part := func(s Sequence) Sequence { s.Continues = true; return s }
	for name, test := range map[string]struct {
		change func(*Advantages)
		group  []Sequence
		want   [][]float64
	}{
		"normalized scores": {nil, []Sequence{four(1), four(0), four(0), four(1)},
			[][]float64{{0, r / 2, r / 2, r / 2}, {0, -r / 2, -r / 2, -r / 2}, {0, -r / 2, -r / 2, -r / 2},
				{0, r / 2, r / 2, r / 2}}},
		"a rollout of two parts counts once": {nil, []Sequence{four(1), part(four(1)), four(0), four(0), part(four(0)),
			four(1)}, [][]float64{{0, r / 2, r / 2, r / 2}, {0, r / 2, r / 2, r / 2}, {0, -r / 2, -r / 2, -r / 2},
			{0, -r / 2, -r / 2, -r / 2}, {0, -r / 2, -r / 2, -r / 2}, {0, r / 2, r / 2, r / 2}}},
		"one rollout of two parts": {nil, []Sequence{four(3), part(four(3))}, [][]float64{{0, 0, 0, 0}, {0, 0, 0, 0}}},
		"without deviation": {func(a *Advantages) { a.Deviation = false }, []Sequence{four(3), four(1)},
			[][]float64{{0, 1, 1, 1}, {0, -1, -1, -1}}},
		"equal scores": {nil, []Sequence{four(0.1), four(0.1), four(0.1)},
			[][]float64{{0, 0, 0, 0}, {0, 0, 0, 0}, {0, 0, 0, 0}}},
		"alone": {nil, []Sequence{four(3)}, [][]float64{{0, 0, 0, 0}}},
		"alone, by its score": {func(a *Advantages) { a.SingleScore = true }, []Sequence{four(3)},
			[][]float64{{0, 3, 3, 3}}},
		"override a token":   {nil, []Sequence{hole}, [][]float64{{0, 1, 0, 3}}},
		"override broadcast": {nil, []Sequence{four(0, 2)}, [][]float64{{0, 2, 2, 2}}},
		"override in response layout": {func(a *Advantages) { a.Layout = ResponseLayout }, []Sequence{response},
			[][]float64{{0, 7, 0, 8}}},
		"mixed: the rest uses all scores": {func(a *Advantages) { a.Deviation = false },
			[]Sequence{four(4, 9), four(0)},
			[][]float64{{0, 9, 9, 9}, {0, -2, -2, -2}}},
		"mixed, whole groups only": {func(a *Advantages) { a.Deviation, a.WholeGroup = false, true },
			[]Sequence{four(4, 9), four(0)},
			[][]float64{{0, 2, 2, 2}, {0, -2, -2, -2}}},
		"overrides off": {func(a *Advantages) { a.Deviation, a.Overrides = false, false },
			[]Sequence{four(4, 9), four(0, 9)},
			[][]float64{{0, 2, 2, 2}, {0, -2, -2, -2}}},
		"override survives equal scores": {nil, []Sequence{four(1, 5), four(1)},
			[][]float64{{0, 5, 5, 5}, {0, 0, 0, 0}}},
		"clipped": {func(a *Advantages) { a.Clip = &[2]float64{-1, 2} },
			[]Sequence{four(0, 0, 5, -5, 1)}, [][]float64{{0, 2, -1, 1}}},
		"zeroed, yet counted in the group": {func(a *Advantages) { a.Deviation = false }, []Sequence{zeroed, four(0)},
			[][]float64{{0, 0, 0, 0}, {0, -0.5, -0.5, -0.5}}},
	} {
		a := DefaultAdvantages()
		if test.change != nil {
			test.change(&a)
		}
		got, _, err := a.assign([]Group{{Name: name, Sequences: test.group}})
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		for i := range test.want {
			for k := range test.want[i] {
				if math.Abs(got[0][i][k]-test.want[i][k]) > 1e-9 {
					t.Errorf("%s: sequence %d has advantages %v, want %v", name, i, got[0][i], test.want[i])
					break
				}
			}
		}
	}
}

func TestWhitenUsesTheWholeBatch(t *testing.T) {
	t.Parallel()
	a := DefaultAdvantages()
	a.Whiten, a.Deviation = true, false
	groups := []Group{{Sequences: []Sequence{four(0, 10)}}, {Sequences: []Sequence{four(0, 4)}},
		{Sequences: []Sequence{four(5), four(1)}}}
	got, _, err := a.assign(groups)
	if err != nil {
		t.Fatal(err)
	}
	d := 3/math.Sqrt(9*6.0/5) - 1e-8 // six tokens, three away from their mean
	if math.Abs(got[0][0][1]-d) > 1e-6 || math.Abs(got[1][0][2]+d) > 1e-6 {
		t.Errorf("overrides became %v and %v, want ±%v", got[0][0], got[1][0], d)
	}
	if got[2][0][1] != 2 || got[2][1][1] != -2 {
		t.Errorf("the group without overrides changed: %v", got[2])
	}
	a.WhitenAll = true
	all, _, err := a.assign(groups)
	if err != nil {
		t.Fatal(err)
	}
	var sum float64
	for _, g := range all {
		for _, s := range g {
			for _, v := range s {
				sum += v
			}
		}
	}
	if math.Abs(sum) > 1e-9 || all[2][0][1] == 2 {
		t.Errorf("whitening everything leaves a sum of %v", sum)
	}
}

func TestFallbackOffIsAnErrorThatNamesTheGroup(t *testing.T) {
	t.Parallel()
	a := DefaultAdvantages()
	a.Fallback = false
	if _, _, err := a.assign([]Group{{Name: "math", Sequences: []Sequence{four(1, 2)}}}); err != nil {
		t.Errorf("a group with overrides needs no fallback: %v", err)
	}
	_, _, err := a.assign([]Group{{Name: "math", Sequences: []Sequence{four(1, 2), four(1)}}})
	if err == nil || !strings.Contains(err.Error(), `group "math", sequence 1`) {
		t.Errorf("got %v", err)
	}
}

func TestValidateRefusesWhatCannotBeTrainedOn(t *testing.T) {
	t.Parallel()
	model := testModel(t).Config
	nan := math.NaN()
	for name, test := range map[string]struct {
		spoil func(*Sequence)
		want  string
	}{
		"empty":         {func(s *Sequence) { s.Tokens = nil }, "at least one token"},
		"unknown token": {func(s *Sequence) { s.Tokens = []int32{4, 5, 6, 99} }, "position 3"},
		"too long":      {func(s *Sequence) { s.Tokens = make([]int32, 40) }, "context"},
		"mask length":   {func(s *Sequence) { s.Trained = s.Trained[:2] }, "masks"},
		"score":         {func(s *Sequence) { s.Score = nan }, "score"},
		"score of 1e38": {func(s *Sequence) { s.Score = -1e38 }, "between -1e+15 and 1e+15, got -1e+38"},
		"advantage of 1e38": {func(s *Sequence) { s.Advantages = []float64{1e38} },
			"between -1e+15 and 1e+15, got 1e+38"},
		"log-prob count":         {func(s *Sequence) { s.LogProbs = []float64{-1} }, "log-probabilities"},
		"log-prob positive":      {func(s *Sequence) { s.LogProbs = []float64{1, -1, 1, -1} }, "token 2"},
		"advantages short":       {func(s *Sequence) { s.Advantages = []float64{1, 2} }, "advantages"},
		"advantages of response": {func(s *Sequence) { s.Advantages = []float64{1, 2, 3} }, "advantages"},
		"advantage NaN":          {func(s *Sequence) { s.Advantages = []float64{nan} }, "advantage 0"},
	} {
		s := four(1)
		test.spoil(&s)
		g := Group{Name: "g", Sequences: []Sequence{four(0), s}}
		err := g.Validate(model, TokenLayout)
		if err == nil || !strings.Contains(err.Error(), test.want) ||
			!strings.Contains(err.Error(), `group "g", sequence 1`) {
			t.Errorf("%s: got %v", name, err)
		}
	}
	good := four(1, 1, 2, 3)
	good.LogProbs = []float64{1, -1, -2, 0} // 1.0 marks a prompt position
	if err := (&Group{Sequences: []Sequence{good}}).Validate(model, ResponseLayout); err != nil {
		t.Error(err)
	}
	if (&Group{}).Validate(model, TokenLayout) == nil {
		t.Error("an empty group was accepted")
	}
}
