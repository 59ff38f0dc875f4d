package rescore

import (
	"cmp"
	"math"
	"slices"

	"github.com/recipe-rl/recipe/internal/lazyregexp"
	"github.com/recipe-rl/recipe/sdk/trajectory"
)

// sameWithin is by how much two scores may differ and agree.
const sameWithin = 1e-6

// Comparison is what two scorings of the same rollouts have in common.
type Comparison struct {
	Groups   int      `json:"groups"`
	Rollouts int      `json:"rollouts"` // recorded
	Scored   int      `json:"scored"`
	Failed   int      `json:"failed"`     // without a score, by an error of the function
	Unable   int      `json:"not_scored"` // rollouts of groups that cannot be scored again
	Reasons  []Reason `json:"reasons"`    // of Failed and Unable, the most frequent first

	Compared int     `json:"compared"` // rollouts with a score before and after
	Before   float64 `json:"mean_before"`
	After    float64 `json:"mean_after"`
	Equal    float64 `json:"equal"`     // share of Compared with the same score, within 1e-6
	SameSign float64 `json:"same_sign"` // share of Compared whose advantage has the same sign

	// Kendall is the mean of Kendall's tau-b over the groups in which it is defined: scores before and after differ there.
	Kendall       *float64 `json:"kendall_tau"`
	KendallGroups int      `json:"kendall_groups"`

	Informative Informative `json:"informative_groups"`
	Changes     []Change    `json:"largest_changes"`
}

// Informative counts groups whose scores differ, of those with two rollouts that are compared.
type Informative struct {
	Of     int `json:"of"`
	Before int `json:"before"`
	After  int `json:"after"`
	Gained int `json:"gained"`
	Lost   int `json:"lost"`
}

// Reason is why rollouts have no score, and how many.
type Reason struct {
	Reason   string `json:"reason"`
	Rollouts int    `json:"rollouts"`
}

// Change is a rollout whose score has changed.
type Change struct {
	Record     string  `json:"record"`
	Group      uint64  `json:"group"`
	Sequence   int     `json:"sequence"`
	Prompt     string  `json:"prompt"` // the last message that the model was given
	Completion string  `json:"completion"`
	Expected   string  `json:"expected,omitempty"`
	Before     float64 `json:"before"`
	After      float64 `json:"after"`
	Times      int     `json:"times"` // how many rollouts have this prompt, completion and change; the first is named
}

// Most reasons and changes that a Comparison names.
const (
	MostReasons = 10
	MostChanges = 10
)

// comparing adds groups up.
type comparing struct {
	out                 Comparison
	before, after, taus float64
	equal, sign         int
	reasons             map[string]*Reason // by their texts without what is quoted in them
}

// quoted are the parts of a reason that differ from rollout to rollout, as the text of a completion does.
var quoted = lazyregexp.New(`'[^']*'|"[^"]*"`)

// reason counts a reason. Those that differ in what they quote are counted together, under the first of them.
func (c *comparing) reason(text string, rollouts int) {
	key := quoted.ReplaceAllString(text, "''")
	if c.reasons[key] == nil {
		c.reasons[key] = &Reason{Reason: text}
	}
	c.reasons[key].Rollouts += rollouts
}

// Compare compares the scores of the run with the scores of a file, and calls each with every group and its result.
func (r *Record) Compare(f *File, each func(*Group, Result) error) (Comparison, error) {
	c := &comparing{reasons: map[string]*Reason{}}
	for _, e := range r.groups {
		result, ok := f.Done[e.key]
		if !ok { // it came meanwhile
			continue
		}
		g, err := e.read()
		if err != nil {
			g = &Group{Key: e.key, Unable: err.Error(), Before: make([]*float64, max(0, min(e.group.Sequences, mostPairs)))}
		}
		c.add(g, result)
		if each != nil {
			if err := each(g, result); err != nil {
				return Comparison{}, err
			}
		}
	}
	return c.done(), nil
}

func (c *comparing) add(g *Group, r Result) {
	c.out.Groups++
	c.out.Rollouts += len(g.Before)
	if r.Unable != "" || g.Unable != "" || len(r.Completions) != len(g.Before) {
		c.out.Unable += len(g.Before)
		c.reason(cmp.Or(r.Unable, g.Unable, "it has changed since it was scored"), len(g.Before))
		return
	}
	var before, after []float64
	var which []int
	for i, one := range r.Completions {
		if one.Score == nil {
			c.out.Failed++
			c.reason(one.Failed, 1)
			continue
		}
		c.out.Scored++
		if g.Before[i] != nil {
			before, after, which = append(before, *g.Before[i]), append(after, *one.Score), append(which, i)
		}
	}
	c.compare(before, after)
	for k, i := range which {
		if math.Abs(before[k]-after[k]) > sameWithin {
			c.change(g, i, before[k], after[k])
		}
	}
}

// compare adds the rollouts of one group.
func (c *comparing) compare(before, after []float64) {
	meanBefore, meanAfter := mean(before), mean(after)
	for i := range before {
		c.out.Compared++
		c.before, c.after = c.before+before[i], c.after+after[i]
		if math.Abs(before[i]-after[i]) <= sameWithin {
			c.equal++
		}
		if sign(before[i]-meanBefore) == sign(after[i]-meanAfter) {
			c.sign++
		}
	}
	if len(before) < 2 {
		return
	}
	was, is := !trajectory.EqualScores(before), !trajectory.EqualScores(after)
	c.out.Informative.Of++
	count := func(n *int, yes bool) {
		if yes {
			*n++
		}
	}
	count(&c.out.Informative.Before, was)
	count(&c.out.Informative.After, is)
	count(&c.out.Informative.Gained, is && !was)
	count(&c.out.Informative.Lost, was && !is)
	if tau, ok := kendall(before, after); ok {
		c.taus += tau
		c.out.KendallGroups++
	}
}

// change keeps the largest changes.
func (c *comparing) change(g *Group, i int, before, after float64) {
	size := func(x Change) float64 { return math.Abs(x.Before - x.After) }
	one := Change{Record: g.Key.Record, Group: g.Key.ID, Sequence: i, Before: before, After: after, Expected: g.Expected,
		Prompt: lastOf(g), Completion: g.Completions[i].Text + g.Completions[i].Stop, Times: 1}
	for k, known := range c.out.Changes {
		if known.Prompt == one.Prompt && known.Completion == one.Completion && known.Before == before &&
			known.After == after {
			c.out.Changes[k].Times++
			return
		}
	}
	at, _ := slices.BinarySearchFunc(c.out.Changes, one, func(a, b Change) int {
		if size(a) >= size(b) { // equal ones stay in the order of the record
			return -1
		}
		return 1
	})
	if at == MostChanges {
		return
	}
	c.out.Changes = slices.Insert(c.out.Changes, at, one)
	c.out.Changes = c.out.Changes[:min(len(c.out.Changes), MostChanges)]
}

func (c *comparing) done() Comparison {
	out := c.out
	if n := float64(out.Compared); n > 0 {
		out.Before, out.After = finite(c.before/n), finite(c.after/n)
		out.Equal, out.SameSign = float64(c.equal)/n, float64(c.sign)/n
	}
	if out.KendallGroups > 0 {
		tau := c.taus / float64(out.KendallGroups)
		out.Kendall = &tau
	}
	out.Reasons = []Reason{}
	for _, r := range c.reasons {
		out.Reasons = append(out.Reasons, *r)
	}
	slices.SortFunc(out.Reasons, func(a, b Reason) int {
		return cmp.Or(b.Rollouts-a.Rollouts, cmp.Compare(a.Reason, b.Reason))
	})
	if len(out.Reasons) > MostReasons {
		rest := Reason{Reason: "other reasons"}
		for _, r := range out.Reasons[MostReasons-1:] {
			rest.Rollouts += r.Rollouts
		}
		out.Reasons = append(out.Reasons[:MostReasons-1], rest)
	}
	if out.Changes == nil {
		out.Changes = []Change{}
	}
	return out
}

// finite is a number that JSON has: scores near its largest one have an infinite sum.
func finite(x float64) float64 {
	if math.IsNaN(x) {
		return 0
	}
	return max(-math.MaxFloat64, min(x, math.MaxFloat64))
}

func mean(x []float64) float64 {
	sum := 0.0
	for _, v := range x {
		sum += v
	}
	return sum / max(1, float64(len(x)))
}

// sign is the sign of an advantage; rounding errors are 0.
func sign(x float64) int {
	switch {
	case x > sameWithin:
		return 1
	case x < -sameWithin:
		return -1
	}
	return 0
}

// mostPairs is of how many rollouts each pair is compared. No environment makes groups of as many.
const mostPairs = 4096

// kendall is Kendall's tau-b; false: it is not defined, as all of one side are equal, or there are too many.
func kendall(x, y []float64) (float64, bool) {
	if len(x) > mostPairs {
		return 0, false
	}
	var concordant, tiedX, tiedY, pairs float64
	for i := range x {
		for j := range i {
			a, b := cmp.Compare(x[i], x[j]), cmp.Compare(y[i], y[j])
			pairs++
			concordant += float64(a * b)
			if a == 0 {
				tiedX++
			}
			if b == 0 {
				tiedY++
			}
		}
	}
	scale := math.Sqrt((pairs - tiedX) * (pairs - tiedY))
	return concordant / max(scale, 1), scale > 0
}

// lastOf is the last message that the model was given.
func lastOf(g *Group) string {
	m := messagesOf(g.RecordedGroup)
	if len(m) == 0 {
		return ""
	}
	return m[len(m)-1].Content
}
