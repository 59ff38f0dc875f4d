package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/recipe-rl/recipe/engine/lineage"
	"github.com/recipe-rl/recipe/schema/addr"
	"github.com/recipe-rl/recipe/sdk/kit/worker/workertest"
)

// grpoRecipe trains a random model on what the tiny model samples: no weights go back, so no engine is needed.
const grpoRecipe = `
variable "steps" { default = 2 }

inference "tiny" "policy" {}

environment "arithmetic" "sums" {
  inference  = inference.tiny.policy
  group_size = 8

  drop_uninformative = true
}

trainer "grpo" "policy" {
  model        = "model"
  environments = [environment.arithmetic.sums]
  steps        = var.steps
  batch_size   = 8
  max_length   = 32

  learning_rate = 1e-3
  correction { mismatch_limit = 0 } # the samples are not its own
  checkpoints { every = 1 }
  runtime { python = "PYTHON" }
}
`

// TestAForkOfRealWeightsContinuesThem: a run of trainer "grpo" with PyTorch on the CPU is forked at its first step. The
// fork begins with that step's weights and optimizer, and its lineage names where it comes from and every package.
//
//docs:lineage.md Forks
func TestAForkOfRealWeightsContinuesThem(t *testing.T) {
	t.Parallel()
	python, err := filepath.Abs(filepath.Join(repository, ".cache", "venv-test", "bin", "python"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(python); err != nil {
		t.Skip("no .cache/venv-test; scripts/test-python.sh makes it")
	}
	dir := t.TempDir()
	workertest.Llama(t, filepath.Join(dir, "model"), 128)
	text := strings.Replace(grpoRecipe, "PYTHON", python, 1)
	if err := os.WriteFile(filepath.Join(dir, "first.hcl"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	run := func(script string) string {
		t.Helper()
		out, err := shell(t, dir, script, "HF_HUB_OFFLINE=1", "OMP_NUM_THREADS=1")
		if err != nil {
			t.Fatalf("%s: %v\n%s", script, err, out)
		}
		return out
	}
	run("recipe apply --auto-approve first.hcl")
	run("recipe fork -r first.hcl --at 1 second.hcl && sed -i.old 's/1e-3/1e-4/' second.hcl")
	if out := run("recipe plan second.hcl"); !strings.Contains(out, "1 to resume") {
		t.Errorf("the fork does not resume:\n%s", out)
	}
	run("recipe apply --auto-approve second.hcl")
	if out := run("recipe logs --json -r second.hcl"); !strings.Contains(out, `"step":2`) ||
		strings.Contains(out, `"type":"progress"`) && strings.Contains(out, `"step":1,`) {
		t.Errorf("the fork did not continue after step 1:\n%s", out)
	}
	data := run("recipe lineage --json second.hcl")
	var l lineage.Lineage
	if err := json.Unmarshal([]byte(data), &l); err != nil {
		t.Fatal(err)
	}
	trainer := l.Blocks[addr.Block{Kind: "trainer", Plugin: "grpo", Name: "policy"}]
	if l.Parent == nil || l.Parent.Recipe != "first" || l.Parent.Step != 1 || trainer.Python == nil ||
		trainer.Python.Packages["torch"] == "" || trainer.Python.Version == "" {
		t.Errorf("the lineage of the fork: %s", data)
	}
	out := run("recipe diff first.hcl second.hcl")
	if !strings.Contains(out, "learning_rate  0.001 → 0.0001") || strings.Contains(out, "Python packages") {
		t.Errorf("the runs differ in:\n%s", out)
	}
}
