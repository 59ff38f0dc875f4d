//go:build e2e

package e2e

import (
	"strings"
	"testing"
	"time"
)

// TestSlurmDelta trains on a host that shares no files with the engine's machine, where inference is: weights are sent
// as differences, by the agents of both.
func TestSlurmDelta(t *testing.T) {
	r := newSlurmRun(t, `{ partition = "cpu" }`, "{\n partition = \"cpu\"\n files = \"staged\"\n}",
		"executor   = executor.slurm.gpu\n    gpus       = 1", "executor = executor.slurm.cpu",
		"  placement { executor = executor.slurm.cpu }\n", "")
	apart(t, "n3")
	r.apply()
	moves := r.await(2*time.Minute, "a transport to be chosen", 0, func(e event) bool {
		return e.Address == "sync.weights.policy" && strings.HasPrefix(e.Message, "weights move by ")
	})
	if want := "reload: the machine of " + r.trainer + " does not see the files in "; !strings.HasPrefix(moves.Message,
		"weights move by delta ") || !strings.Contains(moves.Message, want) {
		t.Errorf("the sync block says %q; expected delta, and %q", moves.Message, want)
	}
	if _, node := jobOf(t, r.trainer); node != "n3" {
		t.Errorf("the trainer is on %s", node)
	}
	if err := r.wait(5 * time.Minute); err != nil {
		t.Fatalf("apply: %v\n%s", err, r.story())
	}
	updates := r.all(func(e event) bool { return e.Type == "weights" && e.Transport == "delta" })
	if len(updates) < 60 {
		t.Errorf("%d updates by delta; expected one for each of 60 steps", len(updates))
	}
	for _, e := range r.all(func(e event) bool { return strings.Contains(e.Message, " was sent to the machine of ") }) {
		t.Log(e.Message)
	}
	noJobsLeft(t)
}
