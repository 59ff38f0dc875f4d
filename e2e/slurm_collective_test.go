//go:build e2e

package e2e

import (
	"os"
	"strings"
	"testing"
	"time"
)

// TestSlurmCollective sends tensors from a trainer on one host to vLLM on another through a process group. Then both
// hosts lose their way to each other: the update that cannot come through names who waits for whom, and when the way is
// back, weights arrive again.
func TestSlurmCollective(t *testing.T) {
	if os.Getenv("RECIPE_SLURM_SHARED") == "" {
		t.Skip("RECIPE_SLURM_SHARED names no folder that is shared with a Slurm cluster: make e2e-slurm-all sets it")
	}
	r := newRun(t, "addition.hcl", map[string]string{"steps": "5", "executor": "slurm", "transport": "nccl",
		"evaluate": "false"})
	r.apply()
	r.await(30*time.Minute, "weights of step 2 to be served", 0, served(2))
	_, from := jobOf(t, "trainer.grpo.policy_0_")
	_, to := jobOf(t, "inference.vllm.policy_0_")
	if from == to {
		t.Fatalf("trainer and vLLM are both on %s", from)
	}
	host(t, "part", from, to)
	t.Cleanup(func() { host(t, "heal", from, to) })
	parted := time.Now()
	failed := r.await(5*time.Minute, "the update to fail", r.last(), func(e event) bool {
		return e.Address != r.trainer && strings.Contains(e.Message, "cannot receive weights from the trainer") ||
			strings.Contains(e.Message, "a bucket of weights")
	})
	t.Logf("%s after the hosts were parted: %s: %s", time.Since(parted).Round(time.Second), failed.Address, failed.Message)
	if want := "rank 0 on " + to; !strings.Contains(failed.Message, want) {
		t.Errorf("it does not name %q", want)
	}
	host(t, "heal", from, to)
	healed := time.Now()
	r.await(10*time.Minute, "weights to be served again", failed.Seq, served(3))
	t.Logf("weights are served %s after the way was back", time.Since(healed).Round(time.Second))
	if err := r.wait(25 * time.Minute); err != nil {
		t.Fatalf("apply: %v\n%s", err, r.story())
	}
	checkWeights(t, r, "nccl")
	if files := r.files("*", "weights", "*"); len(files) > 0 {
		t.Errorf("weights that are sent were written to %v", files)
	}
	noJobsLeft(t)
	for _, e := range r.all(func(e event) bool { return e.Type == "weights" && e.Address == syncBlock }) {
		t.Logf("weights of version %d: %v", e.Version, e.Metrics)
	}
}
