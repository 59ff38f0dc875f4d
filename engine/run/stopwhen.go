package run

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/hcl/v2"

	"github.com/recipe-rl/recipe/engine/plan"
	"github.com/recipe-rl/recipe/schema/decode"
	"github.com/recipe-rl/recipe/sdk/spec"
)

// stopRules follows the stop_when rules of one trainer.
type stopRules struct {
	rules   []decode.StopRule
	held    []int   // consecutive steps for which a metric rule held
	at      []int64 // the last of them; a metric of an evaluation comes after the report of its step
	seen    []bool  // the metric of a rule has come
	told    []bool  // and it was said that it has not
	reports int
	started time.Time
}

func newStopRules(rules []decode.StopRule, started time.Time) *stopRules {
	return &stopRules{rules: rules, held: make([]int, len(rules)), at: make([]int64, len(rules)),
		seen: make([]bool, len(rules)), told: make([]bool, len(rules)), started: started}
}

// metrics takes a step's metrics and returns why the trainer should end, or "".
func (s *stopRules) metrics(step int64, values map[string]float64) string {
	for i, r := range s.rules {
		if r.Tokens > 0 {
			total, ok := values["tokens_total"]
			s.seen[i] = s.seen[i] || ok
			if total >= float64(r.Tokens) {
				return fmt.Sprintf("stop_when: %.0f tokens trained, limit %d", total, r.Tokens)
			}
		}
		value, ok := spec.MetricValue(values, r.Metric)
		if r.Metric == "" || !ok {
			continue
		}
		s.seen[i] = true
		if !holds(value, r.Op, r.Value) {
			s.held[i] = 0
			continue
		}
		if step == s.at[i] && s.held[i] > 0 {
			continue // the same step reported twice counts once
		}
		s.at[i] = step
		if s.held[i]++; s.held[i] >= max(r.For, 1) {
			return fmt.Sprintf("stop_when: %s is %.4g (%s %g) for %d steps", r.Metric, value, r.Op, r.Value, s.held[i])
		}
	}
	return ""
}

// absentAfter is how many reports of a trainer may come without a metric before that is worth a warning.
const absentAfter = 20

// absent returns what to say of the metrics of rules that have not come in as many reports, each once. Those of
// evaluations come with an evaluation, of which a trainer's reports say nothing.
func (s *stopRules) absent() []string {
	s.reports++
	var out []string
	for i, r := range s.rules {
		name := r.Metric
		if r.Tokens > 0 {
			name = "tokens_total"
		}
		if strings.HasPrefix(name, decode.EvaluationPrefix) {
			continue
		}
		if s.reports >= absentAfter && name != "" && !s.seen[i] && !s.told[i] {
			s.told[i] = true
			out = append(out, fmt.Sprintf("stop_when waits for the metric %s, which has not come in %d reports%s: the rule "+
				"cannot hold", name, absentAfter, spec.Reported(r.Since)))
		}
	}
	return out
}

// wall returns why the trainer should end by the clock, or "".
func (s *stopRules) wall(now time.Time) string {
	for _, r := range s.rules {
		if r.Wall > 0 && now.Sub(s.started) >= r.Wall {
			return fmt.Sprintf("stop_when: running for %s", r.Wall)
		}
	}
	return ""
}

func holds(value float64, op string, limit float64) bool {
	switch op {
	case ">=":
		return value >= limit
	case ">":
		return value > limit
	case "<=":
		return value <= limit
	case "<":
		return value < limit
	default:
		return false
	}
}

// renewRules takes over the rules of a changed recipe. The clock of a rule on time goes on.
func (b *blockState) renewRules() {
	if b.rules == nil && len(b.block.Meta.StopWhen) == 0 || !b.HasProcess() || b.rules.same(b.block.Meta.StopWhen) {
		return
	}
	started := time.Now()
	if b.rules != nil {
		started = b.rules.started
	}
	if b.rules = nil; len(b.block.Meta.StopWhen) > 0 {
		b.rules = newStopRules(b.block.Meta.StopWhen, started)
	}
}

// same reports whether a recipe has the same rules.
func (s *stopRules) same(rules []decode.StopRule) bool {
	if s == nil {
		return false
	}
	return slices.EqualFunc(s.rules, rules, func(a, b decode.StopRule) bool {
		a.Range, b.Range = hcl.Range{}, hcl.Range{}
		return a == b
	})
}

// onlyRules reports whether two recorded forms of a block differ in stop_when alone.
func onlyRules(before, after map[string]json.RawMessage) bool {
	equal := func(name string) bool { return bytes.Equal(before[name], after[name]) }
	for name := range before {
		if name != plan.StopName && !equal(name) {
			return false
		}
	}
	for name := range after {
		if name != plan.StopName && !equal(name) {
			return false
		}
	}
	return !equal(plan.StopName)
}
