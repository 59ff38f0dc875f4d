//go:build e2e

package e2e

import (
	"slices"
	"testing"
	"time"
)

// eachOnce sees that the trainer has done the steps from 1 to the last, each once, and that nothing was restarted.
func (r *run) eachOnce(last int) {
	r.t.Helper()
	if steps := r.steps(); len(steps) != last || !slices.IsSorted(steps) {
		r.t.Errorf("the steps are %v; expected 1 to %d, each once", steps, last)
	}
	if n := len(r.all(func(e event) bool { return e.Type == "restart" })); n > 0 {
		r.t.Errorf("%d blocks were restarted\n%s", n, r.story())
	}
}

// TestSlurmDelay adds 200 ms to each round trip between the trainer's host and all others, while the run starts there
// and trains.
func TestSlurmDelay(t *testing.T) {
	r := newSlurmRun(t, "steps        = 60", "steps        = 30", `time_limit = "30m"`, `host = "n1"`)
	host(t, "slow", "n1", "100")
	t.Cleanup(func() { host(t, "slow", "n1", "0") })
	r.apply()
	first := r.stepped(0)
	if _, node := jobOf(t, r.trainer); node != "n1" {
		t.Fatalf("the trainer is on %s", node)
	}
	r.complete()
	r.eachOnce(30)
	list := r.all(func(e event) bool { return e.Type == "metrics" && e.Address == r.trainer && e.Step == 30 })
	if len(list) > 0 {
		t.Logf("29 steps in %s", list[0].Time.Sub(first.Time).Round(100*time.Millisecond))
	}
}

// TestSlurmPartition loses every packet between the trainer's host and that of inference and the environment, up
// to step 100; both still reach the engine. Weights go through files, and batches through its machine: training goes
// on.
func TestSlurmPartition(t *testing.T) {
	r := newSlurmRun(t, `inference "tiny" "policy" {}`, `inference "tiny" "policy" {
  placement {
    executor = executor.slurm.cpu
    memory   = "1GiB"
  }
}`, "placement { executor = executor.slurm.cpu }", `placement {
    executor = executor.slurm.cpu
    memory   = "1GiB"
  }`, "steps        = 60", "steps        = 150")
	r.apply()
	r.stepped(0)
	_, node := jobOf(t, r.trainer)
	if _, other := jobOf(t, "inference.tiny.policy"); other != "n3" {
		t.Fatalf("inference is on %s", other)
	}
	host(t, "part", node, "n3")
	t.Cleanup(func() { host(t, "heal", node, "n3") })
	from := r.last()
	r.stepped(from)
	parted := time.Now()
	r.await(5*time.Minute, "step 100", from, func(e event) bool {
		return e.Type == "metrics" && e.Address == r.trainer && e.Step >= 100
	})
	during := r.all(func(e event) bool { return e.Seq > from && e.Type == "metrics" && e.Address == r.trainer })
	weights := r.all(func(e event) bool { return e.Seq > from && e.Type == "weights" })
	t.Logf("in %s of it: %d steps, %d updates", time.Since(parted).Round(time.Second), len(during), len(weights))
	host(t, "heal", node, "n3")
	r.stepped(r.last())
	r.complete()
	r.eachOnce(150)
}
