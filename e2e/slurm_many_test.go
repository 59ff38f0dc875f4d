//go:build e2e

package e2e

import (
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"
)

// TestSlurmManyEnvironments runs 40 environments as 40 jobs on a host without GPUs. All post to one trajectory server,
// and each of them is trained on.
func TestSlurmManyEnvironments(t *testing.T) {
	const replicas = 40
	host(t, "patience", "120") // so many processes on a busy machine may leave slurmd no time to answer
	t.Cleanup(func() { host(t, "patience", "10") })
	r := newSlurmRun(t, "  group_size = 16\n", fmt.Sprintf("  group_size = 16\n  count = %d\n", replicas),
		"placement { executor = executor.slurm.cpu }", `placement {
    executor = executor.slurm.cpu
    cpus     = 1
    memory   = "100MiB"
  }`, "[environment.arithmetic.sums]", "environment.arithmetic.sums", "batch_size   = 256",
		fmt.Sprintf("batch_size   = %d", 16*replicas))
	r.apply()
	ready := map[string]bool{}
	r.await(6*time.Minute, "all environments to be ready", 0, func(e event) bool {
		if e.Type == "phase" && e.Phase == "ready" && strings.HasPrefix(e.Address, "environment.") {
			ready[e.Address] = true
		}
		return len(ready) == replicas
	})
	nodes := squeue(t, "%N")
	if n := strings.Count(strings.Join(nodes, " ")+" ", "n3 "); n != replicas {
		t.Errorf("%d jobs run on n3, expected %d: %v", n, replicas, nodes)
	}
	r.await(3*time.Minute, "step 20", 0, func(e event) bool {
		return e.Type == "metrics" && e.Address == r.trainer && e.Step >= 20
	})
	r.eachSends(replicas)
	if err := r.wait(6 * time.Minute); err != nil {
		t.Fatalf("apply: %v\n%s", err, r.story())
	}
	r.eachOnce(60)
	noJobsLeft(t)
}

// eachSends waits until the trajectory server has got a group of each replica: steps begin before the last of them is
// ready. The run must still be going on then.
func (r *run) eachSends(replicas int) {
	r.t.Helper()
	failed := r.t.Failed()
	for deadline := time.Now().Add(2 * time.Minute); ; time.Sleep(200 * time.Millisecond) {
		stats := r.ask("trajectories", "stats")
		var silent []int
		for i := range replicas {
			if !regexp.MustCompile(fmt.Sprintf(`(?m)^sums\[%d\]_0 +yes +\S+ ago +\d+ +[1-9]`, i)).MatchString(stats) {
				silent = append(silent, i)
			}
		}
		switch {
		case len(silent) == 0:
			r.t.Log(stats)
			return
		case r.t.Failed() != failed || time.Now().After(deadline):
			r.t.Fatalf("the trajectory server has got nothing of replicas %v:\n%s", silent, stats)
		}
	}
}
