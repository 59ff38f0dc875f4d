package evaluation

import (
	"math"
	"math/rand/v2"
	"slices"

	"github.com/recipe-rl/recipe/sdk"
)

// Comparison is the change of a number between two evaluations of the same tasks.
type Comparison struct {
	Metric string  `json:"metric"`
	Tasks  int     `json:"tasks"`  // in both, with the same prompt
	Before float64 `json:"before"` // over these tasks
	After  float64 `json:"after"`
	Change float64 `json:"change"`
	Low    float64 `json:"low"` // 95 % interval of Change, by bootstrap over tasks
	High   float64 `json:"high"`
}

// Margin is half the width of the interval.
func (c Comparison) Margin() float64 { return (c.High - c.Low) / 2 }

// Resamples is how many bootstrap samples an interval is made of.
const Resamples = 10_000

// PassAt is pass@k of a task of which every completion has a score; false: fewer than k have one.
func PassAt(t sdk.TaskScore, k int, pass float64) (float64, bool) {
	if len(t.Scores) < k || k < 1 {
		return 0, false
	}
	passed := 0
	for _, score := range t.Scores {
		if score >= pass {
			passed++
		}
	}
	return PassAtK(len(t.Scores), passed, k), true
}

// MeanScore is the mean score of a task; false: no completion has one.
func MeanScore(t sdk.TaskScore) (float64, bool) {
	if len(t.Scores) == 0 {
		return 0, false
	}
	sum := 0.0
	for _, score := range t.Scores {
		sum += score
	}
	return sum / float64(len(t.Scores)), true
}

// Compare pairs the tasks of two evaluations by their number and prompt, and gives the mean change of a value of them
// with a 95 % percentile interval of the bootstrap over tasks (Efron and Tibshirani 1993, chapter 13). Tasks without
// the value are left out. The generator of the bootstrap has a fixed seed, so the same results have the same interval.
// False: they have no task in common.
func Compare(metric string, before, after []sdk.TaskScore,
	value func(sdk.TaskScore) (float64, bool)) (Comparison, bool) {
	draws := math.MaxInt
	return compare(metric, before, after, value, &draws)
}

// compare is Compare with a bootstrap that draws at most so many times; otherwise the interval is the normal one.
func compare(metric string, before, after []sdk.TaskScore, value func(sdk.TaskScore) (float64, bool),
	draws *int) (Comparison, bool) {
	earlier := make(map[int]sdk.TaskScore, len(before))
	for _, t := range before {
		earlier[t.Task] = t
	}
	c := Comparison{Metric: metric}
	var changes []float64
	for _, t := range inOrder(after) {
		old, ok := earlier[t.Task]
		if !ok || old.Digest != t.Digest {
			continue
		}
		a, known := value(old)
		b, knownToo := value(t)
		if !known || !knownToo {
			continue
		}
		changes = append(changes, b-a)
		c.Before, c.After = c.Before+a, c.After+b
	}
	if c.Tasks = len(changes); c.Tasks == 0 {
		return c, false
	}
	n := float64(c.Tasks)
	c.Before, c.After = c.Before/n, c.After/n
	c.Change = c.After - c.Before
	c.Low, c.High = bootstrap(changes, draws)
	return c, true
}

// inOrder are tasks by their number: the order in which they were answered is no part of a result.
func inOrder(tasks []sdk.TaskScore) []sdk.TaskScore {
	return slices.SortedFunc(slices.Values(tasks), func(a, b sdk.TaskScore) int { return a.Task - b.Task })
}

// manyTasks is from how many tasks on the interval of a mean change is the normal one. The bootstrap's is no other
// then, and takes seconds.
const manyTasks = 5000

// bootstrap is the 95 % percentile interval of the mean.
func bootstrap(values []float64, draws *int) (low, high float64) {
	if len(values) >= manyTasks || *draws < len(values)*Resamples {
		e := Mean(values)
		return e.Low, e.High
	}
	*draws -= len(values) * Resamples
	random := rand.New(rand.NewPCG(1993, uint64(len(values)))) //nolint:gosec // no secret
	means := make([]float64, Resamples)
	for i := range means {
		sum := 0.0
		for range values {
			sum += values[random.IntN(len(values))]
		}
		means[i] = sum / float64(len(values))
	}
	slices.Sort(means)
	at := func(q float64) float64 { return means[int(math.Round(q*float64(len(means)-1)))] }
	return at(0.025), at(0.975)
}

// Flip is a task of which one evaluation solved at least one completion and the other none.
type Flip struct {
	Task   int    `json:"task"`
	Prompt string `json:"prompt"`
	Solved bool   `json:"solved"` // by the later one
	// Before and After are a completion of each: one that passes where there is one.
	Before string `json:"before"`
	After  string `json:"after"`
}

// Flips are the tasks that only one of two evaluations solved, by number.
func Flips(before, after []sdk.TaskScore, pass float64) []Flip {
	earlier := make(map[int]sdk.TaskScore, len(before))
	for _, t := range before {
		earlier[t.Task] = t
	}
	out := []Flip{}
	for _, t := range inOrder(after) {
		old, ok := earlier[t.Task]
		if !ok || old.Digest != t.Digest || len(old.Scores) == 0 || len(t.Scores) == 0 {
			continue
		}
		was, is := solved(old, pass), solved(t, pass)
		if was != is {
			out = append(out, Flip{t.Task, t.Prompt, is, example(old, pass), example(t, pass)})
		}
	}
	return out
}

func solved(t sdk.TaskScore, pass float64) bool {
	return slices.ContainsFunc(t.Scores, func(s float64) bool { return s >= pass })
}

// example is a completion that passes; else the first with a score.
func example(t sdk.TaskScore, pass float64) string {
	text := ""
	for _, c := range slices.Backward(t.Completions) {
		if c.Score != nil && (*c.Score >= pass || !solved(t, pass)) {
			text = c.Text
		}
	}
	return text
}
