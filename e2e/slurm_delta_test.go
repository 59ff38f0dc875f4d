//go:build e2e

package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

// TestSlurmDelta trains on a host that shares no files with the engine's machine, where inference is: weights are sent
// as differences, by the agents of both.
//
//docs:weights.md Tests
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

// servedRecipe serves SmolLM2 by vLLM on one host, and trains it on n3, which shares no files, on groups that the test
// replays.
const servedRecipe = `
executor "slurm" "gpu" { partition = "gpu" }
executor "slurm" "cpu" {
  partition = "cpu"
  files     = "staged"
}

trajectories "builtin" "default" {}

inference "vllm" "policy" {
  model             = "MODEL"
  dtype             = "bfloat16"
  max_model_len     = 128
  max_num_seqs      = 32
  enforce_eager     = true
  cpu_kvcache_space = 1
  runtime { python = "PYTHON" }
  environment_variables = { OMP_NUM_THREADS = "1", HF_HUB_OFFLINE = "1" }
  health { start_timeout = "30m" }
  placement {
    executor = executor.slurm.gpu
    memory   = "6GiB"
  }
}

trainer "grpo" "policy" {
  model         = "MODEL"
  steps         = STEPS
  batch_size    = 16
  max_length    = 64
  learning_rate = 5e-6
  threads       = 1
  publish_dtype = "bfloat16"
  max_staleness = 100
  kl { coefficient = 0 }
  correction { mismatch_limit = 0 }
  runtime { python = "PYTHON" }
  environment_variables = { OMP_NUM_THREADS = "1", HF_HUB_OFFLINE = "1" }
  health { start_timeout = "30m" }
  placement {
    executor = executor.slurm.cpu
    memory   = "7GiB"
  }
}

sync "weights" "policy" {
  trainer       = trainer.grpo.policy
  inference     = [inference.vllm.policy]
  transport     = "delta"
  max_staleness = 100
}
`

// TestSlurmDeltaServed trains SmolLM2 on a host that shares no files with vLLM's. Every step changes weights: all of
// them are sent once, and differences after that. What vLLM has loaded is what the trainer has published, to the last
// bit.
func TestSlurmDeltaServed(t *testing.T) {
	r := newSlurmRun(t)
	r.trainer = "trainer.grpo.policy"
	python := environmentPython(t, "vllm")
	r.edit(func(string) string {
		return strings.NewReplacer("PYTHON", python, "MODEL", smolLM2(t),
			"STEPS", strconv.Itoa(servedSteps)).Replace(servedRecipe)
	})
	apart(t, "n3", foldersOf(t, python)...)
	r.apply()
	r.await(30*time.Minute, "the trainer to be ready", 0, func(e event) bool {
		return e.Type == "phase" && e.Address == r.trainer && e.Phase == "ready"
	})
	if _, node := jobOf(t, r.trainer); node != "n3" {
		t.Errorf("the trainer is on %s", node)
	}
	var before map[string]string
	for version := range int64(servedSteps) {
		r.replay(2) // a batch
		r.await(5*time.Minute, fmt.Sprintf("version %d to be served", version+1), 0, served(version+1))
		before = r.receivedIs(version+1, before)
	}
	if err := r.wait(5 * time.Minute); err != nil {
		t.Fatalf("apply: %v\n%s", err, r.story())
	}
	r.movedByDelta()
	r.sentDifferences(servedSteps - 1)
	for _, e := range r.all(func(e event) bool { return e.Type == "weights" && e.Address == syncBlock }) {
		t.Log(e.Version, e.Metrics)
	}
	noJobsLeft(t)
}

// servedSteps is how many versions TestSlurmDeltaServed sends.
const servedSteps = 6

// receivedIs sees that the files that vLLM has received are among those that n3 has published and that some of them are
// others than before; it returns them.
func (r *run) receivedIs(version int64, before map[string]string) map[string]string {
	r.t.Helper()
	sid := filepath.Join(filepath.Dir(filepath.Dir(os.Getenv("SLURM_CONF"))), "log", "slurmd-n3.sid")
	pid, err := os.ReadFile(sid)
	if err != nil {
		r.t.Fatal(err)
	}
	home := filepath.Join("/proc", strings.TrimSpace(string(pid)), "root", os.Getenv("HOME"))
	published, received := weightsBelow(home, "published"), weightsBelow(r.dir, "received")
	same, fresh := 0, 0
	for digest := range received {
		_, there := published[digest]
		_, old := before[digest]
		if there {
			same++
		}
		if there && !old {
			fresh++
		}
	}
	if same == 0 || fresh == 0 {
		r.t.Errorf("version %d: vLLM has received %v, %v before, and n3 has published %v; expected new weights, the same on "+
			"both", version, received, before, published)
	}
	return received
}

// sentDifferences sees that at least so many versions were sent as less than a quarter of the weights.
func (r *run) sentDifferences(want int) {
	r.t.Helper()
	found := 0
	const sent = " was sent to the machine of inference.vllm.policy: "
	for _, e := range r.all(func(e event) bool { return strings.Contains(e.Message, sent) }) {
		r.t.Log(e.Message)
		var stream, weights int64
		var share, changed float64
		_, figures, _ := strings.Cut(e.Message, sent)
		if _, err := fmt.Sscanf(figures, "%d bytes, %f %% of %d bytes of weights, of which %f %%", &stream, &share, &weights,
			&changed); err != nil {
			r.t.Errorf("%q: %v", figures, err)
		}
		if changed > 0 && stream < weights/4 {
			found++
		}
	}
	if found < want {
		r.t.Errorf("%d versions were sent as differences; expected %d", found, want)
	}
}
