//go:build e2e

package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

const slurmRecipe = `
executor "slurm" "gpu" { partition = "gpu" }
executor "slurm" "cpu" { partition = "cpu" }

inference "tiny" "policy" {}

environment "arithmetic" "sums" {
  inference  = inference.tiny.policy
  group_size = 16
  placement { executor = executor.slurm.cpu }
}

trainer "tiny" "policy" {
  environments = [environment.arithmetic.sums]
  steps        = 60
  batch_size   = 256
  placement {
    executor   = executor.slurm.gpu
    gpus       = 1
    cpus       = 1
    memory     = "1GiB"
    time_limit = "30m"
  }
}

sync "weights" "policy" {
  trainer   = trainer.tiny.policy
  inference = [inference.tiny.policy]
}
`

// newSlurmRun is a run of slurmRecipe on the cluster of scripts/slurm.sh; edits are pairs of text and what replaces it.
func newSlurmRun(t *testing.T, edits ...string) *run {
	t.Helper()
	if os.Getenv("RECIPE_SLURM_SHARED") == "" {
		t.Skip("RECIPE_SLURM_SHARED names no folder that is shared with a Slurm cluster: make e2e-slurm sets it")
	}
	r := &run{t: t, dir: t.TempDir(), recipe: "slurm.hcl", trainer: "trainer.tiny.policy"}
	text := strings.NewReplacer(edits...).Replace(slurmRecipe)
	if err := os.WriteFile(filepath.Join(r.dir, r.recipe), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.cleanup)
	return r
}

// killEngine kills the engine of a run, as a crash of its machine would.
func (r *run) killEngine() {
	r.t.Helper()
	if err := syscall.Kill(r.cmd.Process.Pid, syscall.SIGKILL); err != nil {
		r.t.Fatal(err)
	}
	_ = r.wait(time.Minute) // killed
}

// command runs a command of the cluster, and returns what it has printed.
func command(t *testing.T, argv ...string) string {
	t.Helper()
	out, err := exec.Command(argv[0], argv[1:]...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", strings.Join(argv, " "), err, out)
	}
	return strings.TrimSpace(string(out))
}

// host does something to a host of the cluster: see scripts/slurm.sh.
func host(t *testing.T, argv ...string) {
	t.Helper()
	command(t, append([]string{filepath.Join(repository(t), "scripts", "slurm.sh")}, argv...)...)
}

// jobOf is the job of a block, and where it runs.
func jobOf(t *testing.T, block string) (id, node string) {
	t.Helper()
	for _, job := range squeue(t, "%i,%j,%N") {
		if fields := strings.Split(job, ","); fields[1] == "recipe-"+block {
			return fields[0], fields[2]
		}
	}
	t.Fatalf("%s has no job: %v", block, squeue(t, "%i,%j,%T"))
	return "", ""
}

// squeue lists the jobs that are not over, as format says.
func squeue(t *testing.T, format string) []string {
	t.Helper()
	return strings.Fields(command(t, "squeue", "--noheader", "--format="+format))
}

func noJobsLeft(t *testing.T) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(200 * time.Millisecond) {
		left := squeue(t, "%i,%j,%T")
		if len(left) == 0 {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("jobs are left: %v", left)
		}
	}
}

// TestSlurmQuickstart trains with the trainer and the environment on two hosts and inference on a third, kills the
// engine, takes a job away, and sees the run complete with nothing left.
func TestSlurmQuickstart(t *testing.T) {
	r := newSlurmRun(t)
	r.apply()
	r.await(2*time.Minute, "the fifth step", 0, func(e event) bool { return e.Type == "metrics" && e.Step >= 5 })
	hosts := strings.Join(squeue(t, "%N"), " ")
	if !strings.Contains(hosts, "n3") || !strings.Contains(hosts, "n1") && !strings.Contains(hosts, "n2") {
		t.Errorf("the jobs are on %q; expected one on n3 and one on n1 or n2", hosts)
	}

	before := squeue(t, "%i")
	r.killEngine()
	r.apply()
	for _, a := range []string{r.trainer, "environment.arithmetic.sums"} {
		r.await(time.Minute, a+" to be adopted", 0, func(e event) bool { return e.Type == "adopted" && e.Address == a })
	}
	if after := squeue(t, "%i"); strings.Join(after, " ") != strings.Join(before, " ") {
		t.Errorf("after the engine was killed, the jobs are %v; expected %v", after, before)
	}

	id, _ := jobOf(t, "environment.arithmetic.sums")
	command(t, "scancel", id) // as an operator would
	r.await(time.Minute, "the environment to be restarted", 0, func(e event) bool {
		return e.Type == "restart" && e.Address == "environment.arithmetic.sums"
	})
	if err := r.wait(5 * time.Minute); err != nil {
		t.Fatalf("apply: %v\n%s", err, r.story())
	}
	noJobsLeft(t)
}

// TestSlurmDestroy leaves no allocation, whether a job runs or waits, and without an engine.
func TestSlurmDestroy(t *testing.T) {
	r := newSlurmRun(t)
	text := strings.ReplaceAll(slurmRecipe, `cpus       = 1`, `cpus       = 4`)
	for _, name := range []string{"waits", "also"} { // n1 has no room for both
		text += `
inference "tiny" "` + name + `" {
  placement {
    executor = executor.slurm.gpu
    gpus     = 2
    host     = "n1"
    cpus     = 4
  }
}
`
	}
	if err := os.WriteFile(filepath.Join(r.dir, r.recipe), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	r.apply()
	pending := r.await(time.Minute, "a job to wait", 0, func(e event) bool {
		return strings.Contains(e.Message, "is pending: Resources") || strings.Contains(e.Message, "is pending: Priority")
	})
	t.Log(pending.Message)
	r.killEngine()
	cmd := exec.Command(r.binary(), "destroy", "--auto-approve", "--checkpoints", "--recipe", r.recipe)
	cmd.Dir = r.dir
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("recipe destroy: %v\n%s", err, out)
	}
	noJobsLeft(t)
}

// TestSlurmIsThere asks for a second cluster, as TestKubernetesIsThere does.
func TestSlurmIsThere(t *testing.T) {
	if os.Getenv("RECIPE_SLURM_SHARED") == "" {
		t.Skip("make e2e-slurm starts a cluster")
	}
	isThere(t, "slurm.sh")
}
