//go:build e2e

package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// apart takes the shared folders away from a host of the cluster until the test ends, but for those that are named.
func apart(t *testing.T, name string, but ...string) {
	t.Helper()
	host(t, "kill", name)
	host(t, append([]string{"apart", name}, but...)...)
	t.Cleanup(func() {
		host(t, "kill", name)
		host(t, "start", name)
		idle(t, name)
	})
	idle(t, name)
	for _, path := range []string{filepath.Join(repository(t), "e2e"), os.Getenv("RECIPE_SLURM_SHARED")} {
		if out, err := exec.Command("srun", "--nodelist="+name, "--chdir=/", "ls", path).Output(); err == nil &&
			len(out) > 0 {
			t.Fatalf("%s sees %s: %s", name, path, out)
		}
	}
}

// idle waits until a host takes jobs again.
func idle(t *testing.T, name string) {
	t.Helper()
	for end := time.Now().Add(time.Minute); ; time.Sleep(200 * time.Millisecond) {
		state := command(t, "sinfo", "--noheader", "--nodes="+name, "--format=%T")
		if strings.HasPrefix(state, "idle\n") || state == "idle" {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("%s is %s", name, state)
		}
	}
}

// TestSlurmStaged runs an environment and the trainer on a host that has no file system in common with the engine's
// machine: kills the engine, asks the trainer's job to end, takes the environment's away, and sees the run complete.
func TestSlurmStaged(t *testing.T) {
	r := newSlurmRun(t, `{ partition = "cpu" }`, "{\n partition = \"cpu\"\n files = \"staged\"\n}",
		"executor   = executor.slurm.gpu\n    gpus       = 1", "executor = executor.slurm.cpu",
		"  placement { executor = executor.slurm.cpu }", "placement {\n executor = executor.slurm.cpu\n memory = \"1GiB\"\n}",
		"steps        = 60", "steps        = 200")
	apart(t, "n3")
	r.apply()
	environment := "environment.arithmetic.sums"
	r.await(2*time.Minute, "the fifth step", 0, func(e event) bool { return e.Type == "metrics" && e.Step >= 5 })
	if _, node := jobOf(t, environment); node != "n3" {
		t.Errorf("the environment is on %s", node)
	}

	r.killEngine()
	r.apply()
	r.await(time.Minute, "it to be adopted", 0, func(e event) bool {
		return e.Type == "adopted" && e.Address == environment
	})

	id, _ := jobOf(t, r.trainer)
	command(t, "scancel", "--batch", "--signal=TERM", id) // as before a time limit
	saved := r.await(time.Minute, "a checkpoint", 0, func(e event) bool {
		return e.Type == "checkpoint" && e.Address == r.trainer
	})
	if _, err := os.Stat(saved.Path); err != nil {
		t.Errorf("the checkpoint of n3 is reported, and not here: %v", err)
	}
	next := r.await(2*time.Minute, "a step of its next attempt", saved.Seq, func(e event) bool {
		return e.Type == "metrics" && e.Address == r.trainer
	})
	if next.Step <= saved.Step {
		t.Errorf("after the checkpoint of step %d the trainer went on with step %d", saved.Step, next.Step)
	}

	id, _ = jobOf(t, environment)
	command(t, "scancel", id) // as an operator would
	r.await(time.Minute, "it to be restarted", 0, func(e event) bool {
		return e.Type == "restart" && e.Address == environment
	})
	if err := r.wait(5 * time.Minute); err != nil {
		t.Fatalf("apply: %v\n%s", err, r.story())
	}
	noJobsLeft(t)
	logs, _ := filepath.Glob(filepath.Join(r.dir, ".recipe", "slurm", "blocks", environment, "agent-*.log"))
	if len(logs) < 2 {
		t.Errorf("the logs of its agents are %v; expected those of two attempts, fetched from n3", logs)
	}
}
