//go:build e2e

package e2e

import (
	"testing"
	"time"
)

// TestReasoningGym trains a few steps on a task of reasoning-gym: groups have tokens, the versions that sampled them
// and rewards that differ, the trainer trains on exactly those, and each update is verified.
func TestReasoningGym(t *testing.T) {
	t.Parallel()
	const steps = 2
	const gym = "environment.atropos.gym"
	r := newRun(t, "reasoning-gym.hcl", map[string]string{"steps": "2"})
	r.apply()
	if err := r.wait(20 * time.Minute); err != nil {
		t.Fatalf("apply: %v\n%s", err, r.story())
	}
	checkSteps(t, r, steps)
	checkWeights(t, r, "live") // what transport and in_flight = "auto" choose on one machine
	checkCheckpoint(t, r)
	for _, e := range r.all(has(r.trainer, "reward/mean")) {
		m := e.Metrics
		// Groups of equal scores are dropped, so each of the four groups has a gradient.
		if m["groups/count"] != 4 || m["sequences/count"] != 32 || m["groups/zero_variance"] != 0 || m["reward/std"] <= 0 {
			t.Errorf(
				"step %d trained on %v groups with %v sequences, %v of them without a difference, rewards ± %v; want 4, 32, 0 "+
					"and a spread",
				e.Step, m["groups/count"], m["sequences/count"], m["groups/zero_variance"], m["reward/std"])
		}
		if m["tokens/trained"] < 32 || m["tokens/trained"] > 32*6 || m["grad_norm"] <= 0 {
			t.Errorf("step %d trained %v tokens with a gradient of %v; want 1 to 6 tokens a sequence, and a gradient", e.Step,
				m["tokens/trained"], m["grad_norm"])
		}
		if unknown, reported := m["staleness/unknown_groups"]; !reported || unknown != 0 {
			t.Errorf("step %d: %v groups do not say which policy version sampled them", e.Step, unknown)
		}
		if d := m["mismatch/mean_abs_first"]; d > 0.5 {
			t.Errorf("step %d: sampler and trainer differ by %v on average: those are not the tokens that were sampled", e.Step,
				d)
		}
	}
	all := r.all(has(gym, "env/reward_all_groups"))
	if len(all) == 0 {
		t.Fatalf("the environment reported nothing over all of its groups\n%s", r.story())
	}
	if m := all[0].Metrics; m["env/groups"] < 4 || m["env/reward_all_groups"] <= 0 || m["env/reward_all_groups"] >= 1 {
		t.Errorf("before training %v groups have the mean reward %v; a task to learn from is sometimes solved, not always",
			m["env/groups"], m["env/reward_all_groups"])
	}
	samples := r.all(func(e event) bool { return e.Type == "sample" && e.Address == gym })
	if len(samples) == 0 {
		t.Error("no rollout is shown")
	}
}
