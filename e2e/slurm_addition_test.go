//go:build e2e

package e2e

import (
	"os"
	"strings"
	"testing"
	"time"
)

// TestSlurmAddition learns addition as TestAddition does, with vLLM, the trainer and the Atropos environment on three
// hosts; of the recipe only the executor differs. The engine is killed on the way, and the next one adopts all three.
func TestSlurmAddition(t *testing.T) {
	if os.Getenv("RECIPE_SLURM_SHARED") == "" {
		t.Skip("RECIPE_SLURM_SHARED names no folder that is shared with a Slurm cluster: make e2e-slurm-all sets it")
	}
	r := newRun(t, "addition.hcl", map[string]string{"steps": "12", "executor": "slurm"})
	blocks := []string{inference, environment, r.trainer}
	r.apply()
	r.await(15*time.Minute, "step 3 to be served", 0, served(3))
	hosts := strings.Join(squeue(t, "%N"), " ")
	for _, host := range []string{"n1", "n2", "n3"} {
		if !strings.Contains(hosts, host) {
			t.Errorf("the jobs are on %q; expected one on %s", hosts, host)
		}
	}
	before := strings.Join(squeue(t, "%i"), " ")
	r.killEngine()
	from := r.last()
	r.apply()
	for _, a := range blocks {
		r.await(2*time.Minute, a+" to be adopted", from, func(e event) bool {
			return e.Type == "adopted" && e.Address == a
		})
	}
	if after := strings.Join(squeue(t, "%i"), " "); after != before {
		t.Errorf("after the engine was killed, the jobs are %s; expected %s", after, before)
	}
	if err := r.wait(25 * time.Minute); err != nil {
		t.Fatalf("apply: %v\n%s", err, r.story())
	}
	learned(t, r)
	checkWeights(t, r, "reload")
	checkSteps(t, r, 12)
	noJobsLeft(t)
	for _, a := range blocks {
		t.Logf("%s: %s from its submission to ready", a, r.untilReady(a))
	}
	for _, e := range r.all(func(e event) bool { return e.Type == "weights" && e.Address == syncBlock }) {
		t.Logf("weights of version %d: %v", e.Version, e.Metrics)
	}
}

// untilReady is the time from the submission of a block's first job to the first time it was ready.
func (r *run) untilReady(block string) time.Duration {
	r.t.Helper()
	submitted := r.await(time.Second, block+" to have been started", 0, func(e event) bool {
		return e.Address == block && e.Type == "phase"
	})
	ready := r.await(time.Second, block+" to have been ready", 0, func(e event) bool {
		return e.Address == block && e.Type == "phase" && e.Phase == "ready"
	})
	return ready.Time.Sub(submitted.Time).Round(100 * time.Millisecond)
}
