//go:build e2e

package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestAgentTools trains two steps on what an unmodified program did with a tool, over vLLM's tokens: each sampled token
// is trained, with the log-probability that vLLM gave it.
//
//docs:environments/agent.md a loop with a tool over real vLLM
func TestAgentTools(t *testing.T) {
	t.Parallel()
	r := newRun(t, "agent-tools.hcl", map[string]string{"steps": "2", "batch_size": "16"})
	trainsOnTools(t, r, "live")
}

// TestSGLangAgent is the same over SGLang's tokens.
//
//docs:environments/agent.md a loop with a tool over real SGLang
func TestSGLangAgent(t *testing.T) {
	t.Parallel()
	vars := map[string]string{"steps": "2", "batch_size": "16"}
	setSGLang(t, vars)
	delete(vars, "engine") // the recipe has no variable for it
	r := newRun(t, "agent-tools.hcl", vars)
	path := filepath.Join(r.dir, r.recipe)
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	recipe := strings.NewReplacer(`inference "vllm"`, `inference "sglang"`, "inference.vllm.", "inference.sglang.",
		"max_model_len          =", "context_length =",
		"enforce_eager          = var.devices == null", "max_running_requests = 16",
		"gpu_memory_utilization = 0.45", "max_total_tokens = 16384",
		"cpu_kvcache_space      = 1", "", "seed                   =", "random_seed =").Replace(string(text))
	if err := os.WriteFile(path, []byte(recipe), 0o600); err != nil {
		t.Fatal(err)
	}
	trainsOnTools(t, r, "live")
}

func trainsOnTools(t *testing.T, r *run, transport string) {
	t.Helper()
	const steps = 2
	const agent = "environment.agent.calculator"
	r.args = append(r.args, "--var-file", "profiles/agent-tools-cpu.vars.hcl")
	r.apply()
	if err := r.wait(40 * time.Minute); err != nil {
		t.Fatalf("apply: %v\n%s", err, r.story())
	}
	checkSteps(t, r, steps)
	checkWeights(t, r, transport)
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
