//go:build e2e

package e2e

import (
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

const nodesRecipe = `
executor "slurm" "gpu" { partition = "gpu" }

trajectories "builtin" "default" {}

trainer "grpo" "policy" {
  model         = "model"
  steps         = STEPS
  batch_size    = 32
  max_length    = 64
  learning_rate = 0.001
  threads       = 1
  kl { coefficient = 0 }
  correction { mismatch_limit = 0 }
  runtime { python = "PYTHON" }
  placement {
    executor = executor.slurm.gpu
    nodes    = NODES
    memory   = "2GiB"
  }
}
`

// newNodesRun is a run of nodesRecipe on Slurm.
func newNodesRun(t *testing.T, steps, nodes int) *run {
	t.Helper()
	r := newSlurmRun(t)
	r.onNodes(torchPython(t), steps, nodes)
	return r
}

// onNodes has a run train a random model of 19,000 weights, on groups that the test replays; edits are pairs of text in
// nodesRecipe and what replaces it.
func (r *run) onNodes(python string, steps, nodes int, edits ...string) {
	r.t.Helper()
	r.trainer = "trainer.grpo.policy"
	edits = append(edits, "STEPS", strconv.Itoa(steps), "NODES", strconv.Itoa(nodes), "PYTHON", python)
	r.edit(func(string) string { return strings.NewReplacer(edits...).Replace(nodesRecipe) })
	command(r.t, python, "-c", `import sys, torch
from transformers import Qwen2Config, Qwen2ForCausalLM
torch.manual_seed(0)
Qwen2ForCausalLM(Qwen2Config(vocab_size=64, hidden_size=32, intermediate_size=64, num_hidden_layers=2,
    num_attention_heads=2, num_key_value_heads=2, max_position_embeddings=128)).save_pretrained(sys.argv[1])`,
		filepath.Join(r.dir, "model"))
}

// replay gives the run's trainer groups of random tokens, the same ones each time.
func (r *run) replay(groups int) {
	r.t.Helper()
	random := rand.New(rand.NewPCG(1, 2))
	var b strings.Builder
	for range groups {
		type list = []any
		tokens, masks, logprobs, scores := list{}, list{}, list{}, list{}
		for range 8 {
			row, mask, logprob := list{1 + random.IntN(63), 1 + random.IntN(63)}, list{-100, -100}, list{1.0, 1.0}
			for range 1 + random.IntN(6) {
				token := 1 + random.IntN(63)
				row, mask, logprob = append(row, token), append(mask, token), append(logprob, -4.1)
			}
			tokens, masks, logprobs = append(tokens, row), append(masks, mask), append(logprobs, logprob)
			scores = append(scores, random.Float64())
		}
		line, err := json.Marshal(map[string]any{"tokens": tokens, "masks": masks, "scores": scores,
			"inference_logprobs": logprobs, "policy_version": 0})
		if err != nil {
			r.t.Fatal(err)
		}
		b.Write(append(line, '\n'))
	}
	path := filepath.Join(r.dir, "groups.jsonl")
	if err := os.WriteFile(path, []byte(b.String()), 0o600); err != nil {
		r.t.Fatal(err)
	}
	cmd := exec.Command(r.binary(), "trajectories", "replay", path, "--recipe", r.recipe)
	cmd.Dir = r.dir
	if out, err := cmd.CombinedOutput(); err != nil {
		r.t.Fatalf("recipe trajectories replay: %v\n%s", err, out)
	}
}

func (r *run) losses() (out []float64) {
	for _, e := range r.all(func(e event) bool { return e.Type == "metrics" && e.Address == r.trainer }) {
		if loss, ok := e.Metrics["loss/total"]; ok {
			out = append(out, loss)
		}
	}
	return out
}

// TestSlurmTwoHosts trains a model on two hosts at once, its weights spread over both (FSDP2, gloo). One rank is killed
// on the way: the attempt fails with the number of its host, and the next one goes on. Losses are those of one process.
//
//docs:clusters.md A trainer on several machines
func TestSlurmTwoHosts(t *testing.T) {
	losses := map[int][]float64{}
	for _, nodes := range []int{1, 2} {
		r := newNodesRun(t, 4, nodes)
		r.apply()
		r.await(4*time.Minute, "the trainer to be ready", 0, func(e event) bool {
			return e.Type == "phase" && e.Address == r.trainer && e.Phase == "ready"
		})
		if _, hosts := jobOf(t, r.trainer); nodes == 2 && hosts != "n[1-2]" {
			t.Errorf("the trainer runs on %s; expected n1 and n2", hosts)
		}
		if nodes == 2 {
			r.killRank(1)
		}
		r.replay(16)
		r.complete()
		losses[nodes] = r.losses()
	}
	sameLosses(t, losses)
}

// sameLosses compares the losses of four steps on one machine and on two.
func sameLosses(t *testing.T, losses map[int][]float64) {
	t.Helper()
	if len(losses[1]) != 4 || len(losses[2]) != 4 {
		t.Fatalf("the losses are %v; expected four of each", losses)
	}
	for i, want := range losses[1] {
		if got := losses[2][i]; math.Abs(got-want) > 1e-5*math.Max(1, math.Abs(want)) {
			t.Errorf("the loss of step %d is %g on two machines, and %g on one", i+1, got, want)
		}
	}
	t.Log(losses)
}

// killRank kills the Python process of a rank, and waits until the trainer runs again.
func (r *run) killRank(rank int) {
	r.t.Helper()
	killed := 0
	for pid, line := range processes(r.t, r.dir) {
		env, _ := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
		if strings.Contains(string(env), fmt.Sprintf("\x00RANK=%d\x00", rank)) && strings.Contains(line, "-m worker") {
			_ = syscall.Kill(pid, syscall.SIGKILL)
			killed++
		}
	}
	if killed != 1 {
		r.t.Fatalf("%d processes are rank %d; expected one", killed, rank)
	}
	again := r.await(2*time.Minute, "the loss of the rank to be seen", 0, func(e event) bool {
		return e.Type == "restart" && e.Address == r.trainer
	})
	if want := fmt.Sprintf("on machine %d (", rank); !strings.Contains(again.Message, want) {
		r.t.Errorf("the restart is explained by %q; expected %q in it", again.Message, want)
	}
	r.await(4*time.Minute, "the trainer to be ready again", again.Seq, func(e event) bool {
		return e.Type == "phase" && e.Address == r.trainer && e.Phase == "ready"
	})
}
