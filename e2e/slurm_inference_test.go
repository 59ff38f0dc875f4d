//go:build e2e

package e2e

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

const inferenceRecipe = `
executor "slurm" "gpu" { partition = "gpu" }

inference "vllm" "policy" {
  model             = "MODEL"
  dtype             = "float32"
  max_model_len     = 128
  enforce_eager     = true
  cpu_kvcache_space = 1
  runtime { python = "PYTHON" }
  environment_variables = { OMP_NUM_THREADS = "1", HF_HUB_OFFLINE = "1" }
  health { start_timeout = "15m" }
  placement {
    executor = executor.slurm.gpu
    nodes    = 2
    memory   = "4GiB"
  }
}
`

// TestSlurmInferenceTwoHosts serves SmolLM2 by vLLM on two hosts behind one gateway, and kills the server of the
// second.
//
//docs:clusters.md Inference on several machines
func TestSlurmInferenceTwoHosts(t *testing.T) {
	python := environmentPython(t, "vllm")
	r := newSlurmRun(t)
	text := strings.NewReplacer("MODEL", smolLM2(t), "PYTHON", python).Replace(inferenceRecipe)
	if err := os.WriteFile(filepath.Join(r.dir, r.recipe), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	const block = "inference.vllm.policy"
	phase := func(what, phase, message string, after int64) event {
		return r.await(10*time.Minute, what, after, func(e event) bool {
			return e.Type == "phase" && e.Address == block && e.Phase == phase && strings.Contains(e.Message, message)
		})
	}
	r.args = []string{"--keep"}
	r.apply()
	ready := phase("both servers to answer", "ready", "vLLM ", 0)
	if _, hosts := jobOf(t, block); hosts != "n[1-2]" {
		t.Errorf("the job is on %s; expected n1 and n2", hosts)
	}
	killed := 0
	for pid, line := range processes(t, r.dir) {
		name, _ := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "environ"))
		if strings.Contains(line, "recipe_serve") && strings.Contains(string(name), "\x00SLURMD_NODENAME=n2\x00") &&
			!strings.Contains(line, "agent start") {
			_ = syscall.Kill(pid, syscall.SIGKILL)
			killed++
		}
	}
	if killed == 0 {
		t.Fatal("no server runs on n2")
	}
	lost := phase("the loss of a server to be seen", "degraded", "1 of 2 replicas answer", ready.Seq)
	phase("it to answer again", "ready", "vLLM ", lost.Seq)
	r.ask("stop")
	if err := r.wait(2 * time.Minute); err != nil {
		t.Logf("apply: %v", err) // stopped
	}
	noJobsLeft(t)
}
