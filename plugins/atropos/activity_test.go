package atropos

import (
	"strings"
	"testing"
)

func TestWhatTheProcessesDo(t *testing.T) {
	t.Parallel()
	many := func(n int, e event) (list []event) {
		for range n {
			list = append(list, e)
		}
		return list
	}
	rolling := event{Event: "poll", Workers: 12}
	for name, c := range map[string]struct {
		events []event
		on     string
		what   string
		detail string
	}{
		"before the trainer": {[]event{{Event: "waiting"}}, "trajectories.builtin.default", "a trainer to register", ""},
		"registered, no poll": {[]event{{Event: "waiting"}, {Event: "registered"}}, "trajectories.builtin.default",
			"the trainer to take what is posted", ""},
		"rollouts": {[]event{{Event: "registered"}, rolling}, "inference.vllm.policy", "12 rollouts", ""},
		"a full queue": {[]event{rolling, {Event: "poll"}}, "trajectories.builtin.default",
			"the trainer to take what is posted", ""},
		"an evaluation": {[]event{rolling, {Event: "evaluating"}}, "inference.vllm.policy", "an evaluation", ""},
		"after an evaluation": {[]event{rolling, {Event: "evaluating"}, {Event: "evaluated"}}, "inference.vllm.policy",
			"12 rollouts", ""},
		"scores all equal": {append([]event{rolling}, many(8, event{Event: "group", Same: true})...), "",
			"a group worth sending", "all equal"},
		"too long": {append([]event{rolling}, many(9, event{Event: "group", Long: true})...), "",
			"a group worth sending", "longer"},
		"a good one among them": {append(many(8, event{Event: "group", Same: true}), event{Event: "group"}, rolling),
			"inference.vllm.policy", "12 rollouts", ""},
	} {
		d := &doing{inference: "inference.vllm.policy", trajectories: "trajectories.builtin.default"}
		for _, e := range c.events {
			d.take(0, e)
		}
		got := d.activities()
		if len(got) != 1 || got[0].On != c.on || got[0].What != c.what || !strings.Contains(got[0].Detail, c.detail) {
			t.Errorf("%s: %+v", name, got)
		}
	}
	two := &doing{inference: "inference.vllm.policy", trajectories: "trajectories.builtin.default"}
	two.take(0, rolling)
	two.take(1, event{Event: "poll", Workers: 3})
	if got := two.activities(); len(got) != 1 || got[0].What != "15 rollouts" {
		t.Errorf("two processes: %+v", got)
	}
}
