//go:build e2e

package e2e

import (
	"math"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

// foreignRecipe trains with a trainer that is not recipe's own, on NODES hosts with GPUS ranks each.
const foreignRecipe = `
executor "slurm" "gpu" { partition = "gpu" }

trajectories "builtin" "default" {}

trainer "TRAINER" "policy" {
  model      = "model"
  steps      = 4
  batch_size = 32
  max_length = 64
  config     = CONFIG
  checkpoints { every = 1 }
  runtime { python = "PYTHON" }
  environment_variables = { OMP_NUM_THREADS = "1" }
  placement {
    executor = executor.slurm.gpu
    nodes    = NODES
    gpus     = GPUS
    cpus     = 2
    memory   = "6GiB"
  }
}
`

// foreignConfigs are settings of the trainers in their own names.
var foreignConfigs = map[string]string{
	"verl": `{ actor = { optim = { lr = 0.001 }, ppo_mini_batch_size = 4 } }`,
	"trl": `{ learning_rate = 0.001, lr_scheduler_type = "constant", loss_type = "dapo",
    per_device_train_batch_size = 8 }`,
	"axolotl": `{ learning_rate = 0.001, micro_batch_size = 8 }`,
}

// TestSlurmTrainersOnTwoHosts trains with verl, TRL and Axolotl, on two ranks of one host and on a rank on each of two.
// Losses and gradient norms are the same. After two of four steps everything on the second host is killed: the attempt
// fails with its number, and the next one goes on when the host is back.
//
//docs:clusters.md A trainer on several machines
func TestSlurmTrainersOnTwoHosts(t *testing.T) {
	for trainer, config := range foreignConfigs {
		t.Run(trainer, func(t *testing.T) {
			one := newForeignRun(t, trainer, config, 1)
			one.startsOn("n1", "n2")
			one.replay(8)
			one.replay(8) // the same ones again
			one.complete()

			two := newForeignRun(t, trainer, config, 2)
			two.startsOn("n[1-2]")
			two.replay(8)
			two.await(3*time.Minute, "a checkpoint of step 2", 0, func(e event) bool {
				return e.Type == "checkpoint" && e.Address == two.trainer && e.Step == 2
			})
			two.losesHost("n2", 1)
			two.replay(8)
			two.complete()
			for _, what := range []string{"loss/total", "grad_norm"} {
				sameSteps(t, what, one.perStep(what), two.perStep(what))
			}
		})
	}
}

// newForeignRun is a run of foreignRecipe with two ranks on so many hosts.
func newForeignRun(t *testing.T, trainer, config string, nodes int) *run {
	t.Helper()
	r := newSlurmRun(t)
	r.trainer = "trainer." + trainer + ".policy"
	python := environmentPython(t, trainer)
	r.edit(func(string) string {
		return strings.NewReplacer("TRAINER", trainer, "CONFIG", config, "PYTHON", python, "NODES", strconv.Itoa(nodes),
			"GPUS", strconv.Itoa(2/nodes)).Replace(foreignRecipe)
	})
	command(t, python, "-c", `import sys, torch
from tokenizers import Tokenizer, models
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast
torch.manual_seed(0)
LlamaForCausalLM(LlamaConfig(vocab_size=64, hidden_size=32, intermediate_size=64, num_hidden_layers=2,
    num_attention_heads=2, num_key_value_heads=2, max_position_embeddings=128, bos_token_id=1, eos_token_id=2)
).save_pretrained(sys.argv[1])
words = Tokenizer(models.WordLevel({f"w{i}": i for i in range(64)}, unk_token="w0"))
PreTrainedTokenizerFast(tokenizer_object=words, pad_token="w0", eos_token="w2").save_pretrained(sys.argv[1])`,
		filepath.Join(r.dir, "model"))
	return r
}

// startsOn starts the run, and sees its trainer ready on hosts as Slurm writes them, any of those that are named.
func (r *run) startsOn(hosts ...string) {
	r.t.Helper()
	r.apply()
	r.isReady(0)
	_, on := jobOf(r.t, r.trainer)
	for _, h := range hosts {
		if on == h {
			return
		}
	}
	r.t.Errorf("the trainer runs on %s; expected %v", on, hosts)
}

// isReady waits until the trainer is ready, after the event with the given number.
func (r *run) isReady(after int64) {
	r.t.Helper()
	r.await(6*time.Minute, "the trainer to be ready", after, func(e event) bool {
		return e.Type == "phase" && e.Address == r.trainer && e.Phase == "ready"
	})
}

// losesHost kills everything on a host of the trainer, its machine of the given number, and starts the host again when
// the loss has been seen. The trainer runs on it again then.
func (r *run) losesHost(name string, machine int) {
	r.t.Helper()
	from := r.last()
	host(r.t, "kill", name)
	lost := r.await(90*time.Second, "the loss of a machine to be seen", from, func(e event) bool {
		return e.Type == "restart" && e.Address == r.trainer
	})
	host(r.t, "start", name)
	if want := "on machine " + strconv.Itoa(machine) + " ("; !strings.Contains(lost.Message, want) {
		r.t.Errorf("the restart is explained by %q; expected %q in it", lost.Message, want)
	}
	r.t.Log(lost.Message)
	r.isReady(lost.Seq)
}

// perStep are the values of a metric of the trainer by step, the newest of each.
func (r *run) perStep(metric string) map[int64]float64 {
	out := map[int64]float64{}
	for _, e := range r.all(func(e event) bool { return e.Type == "metrics" && e.Address == r.trainer }) {
		if value, ok := e.Metrics[metric]; ok {
			out[e.Step] = value
		}
	}
	return out
}

// sameSteps compares four steps of two ranks on one host and on two.
func sameSteps(t *testing.T, what string, one, two map[int64]float64) {
	t.Helper()
	if len(one) != 4 || len(two) != 4 {
		t.Fatalf("%s of the steps is %v on one host and %v on two; expected four of each", what, one, two)
	}
	for step, want := range one {
		if got := two[step]; math.Abs(got-want) > 1e-5*math.Max(1, math.Abs(want)) {
			t.Errorf("%s of step %d is %g on two hosts, and %g on one", what, step, got, want)
		}
	}
	t.Log(what, one, two)
}
