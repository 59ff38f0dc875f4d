//go:build e2e

package e2e

import (
	"path/filepath"
	"testing"
	"time"
)

// onVerl is a run of addition.hcl with verl's engine in place of recipe's own worker.
func onVerl(t *testing.T, vars map[string]string) *run {
	t.Helper()
	vars["trainer"] = "verl"
	vars["trainer_python"] = filepath.Join(repository(t), ".cache", "venv-verl", "bin", "python")
	return newRun(t, "addition.hcl", vars)
}

// TestVerl is the whole loop with verl, whose program is killed once: it learns addition.
func TestVerl(t *testing.T) {
	t.Parallel()
	r := onVerl(t, map[string]string{"steps": "12"})
	r.apply()
	before := r.await(30*time.Minute, "the evaluation before training", 0, has(environment, accuracy)).Metrics[accuracy]
	fifth := r.await(30*time.Minute, "step 5 to be served", 0, served(5))
	kill(t, r, `-m recipe_verl --config`)
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

// TestVerlTransports moves verl's weights to vLLM by every other transport that a CPU has.
func TestVerlTransports(t *testing.T) {
	for _, transport := range []string{"ipc", "live", "nccl"} {
		t.Run(transport, func(t *testing.T) {
			t.Parallel()
			r := onVerl(t, map[string]string{"steps": "2", "transport": transport, "evaluate": "false"})
			r.apply()
			if err := r.wait(40 * time.Minute); err != nil {
				t.Fatalf("apply: %v\n%s", err, r.story())
			}
			checkWeights(t, r, transport)
		})
	}
}
