//go:build e2e

package e2e

import (
	"path/filepath"
	"testing"
	"time"
)

// onTRL is a run of addition.hcl with TRL's GRPOTrainer in place of recipe's own worker.
func onTRL(t *testing.T, vars map[string]string) *run {
	t.Helper()
	vars["trainer"] = "trl"
	vars["trainer_python"] = filepath.Join(repository(t), ".cache", "venv-trl", "bin", "python")
	return newRun(t, "addition.hcl", vars)
}

// TestTRL is the whole loop with TRL, whose program is killed once: it learns addition.
func TestTRL(t *testing.T) {
	t.Parallel()
	r := onTRL(t, map[string]string{"steps": "12"})
	r.apply()
	before := r.await(30*time.Minute, "the evaluation before training", 0, has(environment, accuracy)).Metrics[accuracy]
	fifth := r.await(30*time.Minute, "step 5 to be served", 0, served(5))
	kill(t, r, `-m recipe_trl --config`)
	r.await(20*time.Minute, "the trainer to be started again", fifth.Seq,
		func(e event) bool { return e.Type == "restart" && e.Address == r.trainer })
	if err := r.wait(60 * time.Minute); err != nil {
		t.Fatalf("apply: %v\n%s", err, r.story())
	}
	evaluations := r.all(has(environment, accuracy))
	after := evaluations[len(evaluations)-1].Metrics[accuracy]
	t.Logf("held-out accuracy %.3f before, %.3f after", before, after)
	if after < before+0.3 {
		t.Errorf("held-out accuracy went from %.3f to %.3f; want at least 0.3 more", before, after)
	}
	checkWeights(t, r, "reload")
	checkSteps(t, r, 12)
	checkCheckpoint(t, r)
}

// TestTRLTransports moves TRL's weights to vLLM by every other transport that a CPU has.
func TestTRLTransports(t *testing.T) {
	for _, transport := range []string{"ipc", "live", "nccl", "lora"} {
		t.Run(transport, func(t *testing.T) {
			t.Parallel()
			vars := map[string]string{"steps": "2", "transport": transport, "evaluate": "false"}
			if transport == "lora" {
				vars["lora_rank"] = "8"
			}
			r := onTRL(t, vars)
			r.apply()
			if err := r.wait(40 * time.Minute); err != nil {
				t.Fatalf("apply: %v\n%s", err, r.story())
			}
			checkWeights(t, r, transport)
		})
	}
}

// TestTRLShort is the shortest run: a step is trained on what vLLM sampled, and its weights are served and verified.
func TestTRLShort(t *testing.T) {
	t.Parallel()
	r := onTRL(t, map[string]string{"steps": "1", "evaluate": "false"})
	r.apply()
	if err := r.wait(30 * time.Minute); err != nil {
		t.Fatalf("apply: %v\n%s", err, r.story())
	}
	checkWeights(t, r, "reload")
	checkSteps(t, r, 1)
}
