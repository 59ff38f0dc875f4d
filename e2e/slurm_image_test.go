//go:build e2e

package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// imaged is the executor of jobs that run in a container of a real Apptainer. Root, as the hosts of these tests run
// jobs, may not ask for all the privileges that it would take.
func imaged(t *testing.T, partition, more string) string {
	t.Helper()
	if os.Getenv("RECIPE_APPTAINER") == "" {
		t.Skip("RECIPE_APPTAINER names no program: make e2e-slurm-all builds it")
	}
	image := filepath.Join(os.Getenv("RECIPE_SLURM_SHARED"), "image.sif")
	command(t, filepath.Join(repository(t), "scripts", "apptainer.sh"), "image", image)
	return fmt.Sprintf(`{
  partition     = %q
  setup         = ["export PATH=%s:$PATH"]
  image         = %q
  image_options = ["--no-privs", "--bind=%s"]
  %s
}`, partition, filepath.Dir(os.Getenv("RECIPE_APPTAINER")), image, filepath.Join(repository(t), "bin"), more)
}

// TestSlurmImage runs trainer and environment in containers, the environment with the files that its agent fetches:
// they have the variables of the image and its files, write a checkpoint when their job is asked to end, go on when the
// engine is killed, and leave nothing.
//
//docs:clusters.md A first run on Slurm
func TestSlurmImage(t *testing.T) {
	r := newSlurmRun(t, `{ partition = "gpu" }`, imaged(t, "gpu", ""),
		`{ partition = "cpu" }`, imaged(t, "cpu", `files = "staged"`), "steps        = 60", "steps        = 1000")
	t.Setenv("PYTHONPATH", "/of/the/login/node")
	r.apply()
	r.stepped(0)
	inside := 0
	for pid, line := range processes(t, r.dir) {
		if !strings.Contains(line, " plugin-process "+r.trainer) &&
			!strings.Contains(line, " plugin-process environment.") {
			continue
		}
		environment, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
		if err != nil {
			continue // of the container's own processes
		}
		inside++
		if !strings.Contains(string(environment), "\x00IMAGE=recipe-test\x00") ||
			strings.Contains(string(environment), "PYTHONPATH") {
			t.Errorf("process %d has not the environment of its image: %q", pid, environment)
		}
		if _, err := os.Stat(fmt.Sprintf("/proc/%d/root/.singularity.d", pid)); err != nil {
			t.Errorf("process %d is in no container: %v", pid, err)
		}
	}
	if inside == 0 {
		t.Fatalf("no process of trainer or environment among %v", processes(t, r.dir))
	}

	id, _ := jobOf(t, r.trainer)
	command(t, "scancel", "--batch", "--signal=TERM", id) // as before a time limit
	r.asked(time.Minute)
	r.killEngine()
	r.apply()
	r.await(time.Minute, "the trainer to be adopted", 0, func(e event) bool {
		return e.Type == "adopted" && e.Address == r.trainer
	})
	r.stepped(r.last())
	r.ask("stop")
	noJobsLeft(t)
	for pid, line := range processes(t, r.dir) {
		t.Errorf("process %d is left: %s", pid, line)
	}
}

// TestSlurmImageMissing names the image that a machine does not have.
func TestSlurmImageMissing(t *testing.T) {
	r := newSlurmRun(t, `{ partition = "cpu" }`, strings.ReplaceAll(imaged(t, "cpu", ""), "image.sif", "nowhere.sif"))
	r.apply()
	r.await(time.Minute, "the image to be missed", 0, func(e event) bool {
		return e.Address == "environment.arithmetic.sums" && strings.Contains(e.Message, "nowhere.sif") &&
			strings.Contains(e.Message, "no such file")
	})
	if err := r.wait(2 * time.Minute); err == nil {
		t.Error("apply succeeds without the image")
	}
	noJobsLeft(t)
}
