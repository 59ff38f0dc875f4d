package run

import (
	"strings"
	"testing"
	"time"

	"github.com/recipe-rl/recipe/schema/decode"
	"github.com/recipe-rl/recipe/sdk/kind"
)

//docs:survival.md the clock jumps back
func TestDecideRestart(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	ago := func(d ...time.Duration) (out []time.Time) {
		for _, x := range d {
			out = append(out, now.Add(-x))
		}
		return out
	}
	p := decode.Restart{Attempts: 3, Window: 10 * time.Minute, Delay: time.Second, MaxDelay: 3 * time.Second}
	tests := []struct {
		name    string
		policy  decode.Restart
		history []time.Time
		jitter  float64
		want    bool
		delay   time.Duration
		attempt int
	}{
		{"first failure", p, nil, 0, true, time.Second, 1},
		{"jitter only shortens, by a quarter at most", p, nil, 1, true, 750 * time.Millisecond, 1},
		{"second doubles", p, ago(time.Minute), 0, true, 2 * time.Second, 2},
		{"third is capped", p, ago(2*time.Minute, time.Minute), 0, true, 3 * time.Second, 3},
		{"fourth is refused", p, ago(3*time.Minute, 2*time.Minute, time.Minute), 0, false, 0, 0},
		{"old ones are forgotten", p, ago(time.Hour, 30*time.Minute, time.Minute), 0, true, 2 * time.Second, 2},
		{"a clock set back gives no free restarts", p, ago(-time.Hour, -time.Hour, -time.Hour), 0, false, 0, 0},
		{"none allowed", decode.Restart{Window: time.Minute}, nil, 0, false, 0, 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			v := decideRestart(tt.policy, tt.history, now, tt.jitter)
			if v.Restart != tt.want || v.Delay != tt.delay || v.Attempt != tt.attempt {
				t.Errorf("got %+v, want restart %v, delay %v, attempt %d", v, tt.want, tt.delay, tt.attempt)
			}
			if v.Restart && !v.History[len(v.History)-1].Equal(now) {
				t.Errorf("the restart is not in its history %v", v.History)
			}
		})
	}
}

func TestPoliciesHaveDefaults(t *testing.T) {
	t.Parallel()
	if p := restartPolicy(nil); p.Attempts != 3 || p.Mode != "fail" || p.Window == 0 || p.MaxDelay < p.Delay {
		t.Errorf("restart defaults %+v", p)
	}
	if p := restartPolicy(&decode.Restart{Attempts: 0, Mode: "ignore"}); p.Attempts != 0 || p.Mode != "ignore" ||
		p.Delay != 0 {
		t.Errorf("a written block keeps its values: %+v", p)
	}
	if a, b := healthPolicy(nil, kind.Inference), healthPolicy(nil, kind.Sync); a.StartTimeout <= b.StartTimeout {
		t.Errorf("an inference server gets no longer to start than a sync block: %v, %v", a.StartTimeout,
			b.StartTimeout)
	}
	// Attributes that are not set have the same defaults with a block as without it.
	for _, k := range kind.All() {
		if h := healthPolicy(&decode.Health{}, k); h != (decode.Health{}) {
			t.Errorf("a second source of defaults: %+v", h)
		}
	}
}

// A metric of an evaluation comes after the report of its step, and not with every step: results in a row count.
func TestStopRuleOnEvaluations(t *testing.T) {
	t.Parallel()
	const metric = "evaluation/held_out/score"
	s := newStopRules([]decode.StopRule{{Metric: metric, Op: ">=", Value: 0.5, For: 2}}, time.Now())
	for step := int64(1); step < 40; step++ {
		if got := s.metrics(step, map[string]float64{"reward": 1}); got != "" {
			t.Fatalf("step %d: %q", step, got)
		}
		if step == 20 && s.metrics(step, map[string]float64{metric: 0.6}) != "" {
			t.Fatal("one result ends a trainer that waits for two")
		}
	}
	s.metrics(40, map[string]float64{"reward": 1})
	if got := s.metrics(40, map[string]float64{metric: 0.6}); !strings.Contains(got, "for 2 steps") {
		t.Errorf("two results in a row: %q", got)
	}
}

func TestStopRules(t *testing.T) {
	t.Parallel()
	start := time.Now()
	s := newStopRules([]decode.StopRule{{Metric: "reward", Op: ">=", Value: 0.9, For: 3}, {Tokens: 1000},
		{Wall: time.Hour}}, start)
	steps := []struct {
		step   int64
		values map[string]float64
		want   bool
	}{
		{1, map[string]float64{"reward": 0.95}, false},
		{1, map[string]float64{"reward": 0.95}, false}, // the same step again
		{2, map[string]float64{"reward": 0.95}, false},
		{3, map[string]float64{"reward": 0.5}, false}, // starts over
		{4, map[string]float64{"reward": 0.9}, false},
		{5, map[string]float64{"reward": 0.9}, false},
		{6, map[string]float64{"reward": 0.9}, true},
	}
	for i, st := range steps {
		if got := s.metrics(st.step, st.values); (got != "") != st.want {
			t.Errorf("report %d (step %d): %q, want an end: %v", i, st.step, got, st.want)
		}
	}
	if got := s.metrics(7, map[string]float64{"tokens_total": 999}); got != "" {
		t.Errorf("999 of 1000 tokens: %q", got)
	}
	if got := s.metrics(8, map[string]float64{"tokens_total": 1000}); got == "" {
		t.Error("1000 of 1000 tokens did not end it")
	}
	if got := s.wall(start.Add(59 * time.Minute)); got != "" {
		t.Errorf("before the hour: %q", got)
	}
	if got := s.wall(start.Add(time.Hour)); got == "" {
		t.Error("the hour did not end it")
	}
}

// A metric that does not come is worth one warning.
func TestStopRulesWithoutTheirMetric(t *testing.T) {
	t.Parallel()
	s := newStopRules([]decode.StopRule{{Metric: "eval/acc", Op: ">", Since: "after an evaluation"},
		{Metric: "evaluation/held_out/score", Op: ">"}, // an evaluation may be due later
		{Metric: "reward/mean", Op: ">", Value: 1},
		{Tokens: 1000}}, time.Now())
	var said []string
	for step := range int64(2 * absentAfter) {
		s.metrics(step, map[string]float64{"reward": 0}) // reward/mean is its other name
		said = append(said, s.absent()...)
	}
	for i, want := range []string{"the metric eval/acc, which has not come in 20 reports (it is reported after an " +
		"evaluation): the rule cannot hold", "the metric tokens_total, which has not come in 20 reports: the rule"} {
		if len(said) != 2 || !strings.Contains(said[i], want) {
			t.Fatalf("absent: %q, want two with %q", said, want)
		}
	}
}

func TestSecretsAreScrubbed(t *testing.T) {
	t.Parallel()
	e := &Engine{known: map[string]bool{}}
	e.addSecrets("hunter2-long", "hunter2-long-er", "abc")
	got := e.scrub("key=hunter2-long-er other=hunter2-long short=abc")
	if want := "key=(sensitive) other=(sensitive) short=abc"; got != want {
		t.Errorf("scrubbed to %q, want %q", got, want)
	}
}
