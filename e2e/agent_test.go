//go:build e2e

package e2e

import (
	"testing"
	"time"
)

// TestAgentTools trains two steps on what an unmodified program did with a tool, over vLLM's tokens: each sampled token
// is trained, with the log-probability that vLLM gave it.
func TestAgentTools(t *testing.T) {
	t.Parallel()
	const steps = 2
	const agent = "environment.agent.calculator"
	r := newRun(t, "agent-tools.hcl", map[string]string{"steps": "2", "batch_size": "16"})
	r.args = append(r.args, "--var-file", "profiles/agent-tools-cpu.vars.hcl")
	r.apply()
	if err := r.wait(20 * time.Minute); err != nil {
		t.Fatalf("apply: %v\n%s", err, r.story())
	}
	checkSteps(t, r, steps)
	checkWeights(t, r, "live")
	for _, e := range r.all(has(r.trainer, "reward/mean")) {
		m := e.Metrics
		if m["groups/count"] != 2 || m["sequences/count"] < 16 || m["rejected_groups/total"] != 0 || m["grad_norm"] <= 0 {
			t.Errorf("step %d trained %v groups with %v sequences, %v groups were rejected, gradient %v; want 2, 16 or more, "+
				"0, and a gradient", e.Step, m["groups/count"], m["sequences/count"], m["rejected_groups/total"], m["grad_norm"])
		}
		if d := m["mismatch/mean_abs_first"]; d > 0.1 {
			t.Errorf("step %d: sampler and trainer differ by %v on average: those are not the tokens that were sampled", e.Step,
				d)
		}
	}
	all := r.all(has(agent, "metrics/calls"))
	if len(all) == 0 {
		t.Fatalf("the environment reported nothing\n%s", r.story())
	}
	for _, e := range all {
		if m := e.Metrics; m["metrics/calls"] <= 1 || m["metrics/untrained_tokens"] != 0 {
			t.Errorf("rollouts have %v calls and %v tokens that are not trained; want several, and 0", m["metrics/calls"],
				m["metrics/untrained_tokens"])
		}
	}
}
