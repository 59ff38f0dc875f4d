package run

import (
	"fmt"
	"time"

	"github.com/recipe-rl/recipe/schema"
)

// stopRules follows the stop_when rules of one trainer.
type stopRules struct {
	rules   []schema.StopRule
	held    []int // consecutive steps for which a metric rule held
	step    int64
	started time.Time
}

func newStopRules(rules []schema.StopRule, started time.Time) *stopRules {
	return &stopRules{rules: rules, held: make([]int, len(rules)), started: started}
}

// metrics takes a step's metrics and returns why the trainer should end, or "".
func (s *stopRules) metrics(step int64, values map[string]float64) string {
	for i, r := range s.rules {
		if r.Tokens > 0 {
			if total := values["tokens_total"]; total >= float64(r.Tokens) {
				return fmt.Sprintf("stop_when: %.0f tokens trained, limit %d", total, r.Tokens)
			}
		}
		value, ok := values[r.Metric]
		if r.Metric == "" || !ok {
			continue
		}
		if !holds(value, r.Op, r.Value) {
			s.held[i] = 0
			continue
		}
		if step == s.step && s.held[i] > 0 {
			continue // the same step reported twice counts once
		}
		if s.held[i]++; s.held[i] >= max(r.For, 1) {
			return fmt.Sprintf("stop_when: %s is %.4g (%s %g) for %d steps", r.Metric, value, r.Op, r.Value, s.held[i])
		}
	}
	s.step = step
	return ""
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
