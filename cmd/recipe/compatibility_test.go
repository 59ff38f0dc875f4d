package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/recipe-rl/recipe/sdk/kit/engine/enginetest"
)

// pair is a recipe with an engine, a trainer and weights between them. A tiny model has no folder.
func pair(engine, trainer, model string) string {
	attribute := func(plugin string) string {
		if plugin == "tiny" {
			return ""
		}
		return fmt.Sprintf("model = %q\n", model)
	}
	external := ""
	if engine == "external" {
		engine, external = "vllm", "external { endpoint = \"http://127.0.0.1:9/v1\" }\n"
	}
	return fmt.Sprintf(`
inference %[1]q "policy" {
%[2]s%[3]s}
environment "arithmetic" "sums" { inference = inference.%[1]s.policy }
trainer %[4]q "policy" {
%[5]senvironments = [environment.arithmetic.sums]
}
sync "weights" "policy" {
  trainer   = trainer.%[4]s.policy
  inference = [inference.%[1]s.policy]
}
`, engine, attribute(engine), external, trainer, attribute(trainer))
}

// TestThePlanSaysWhatCompatibilitySays plans each cell of the table in docs/compatibility.md: where it says no, the
// plan is refused for the reason that the page gives, and nowhere else.
func TestThePlanSaysWhatCompatibilitySays(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile(filepath.Join(repository, "docs", "compatibility.md"))
	if err != nil {
		t.Fatal(err)
	}
	reasons := map[string]string{}
	for _, m := range regexp.MustCompile(`(?m)^(\d+)\. (.*)\.$`).FindAllStringSubmatch(string(page), -1) {
		reasons["no ("+m[1]+")"] = m[2]
	}
	table, _, _ := strings.Cut(string(page), "\n1. ")
	var engines []string
	cells := 0
	for line := range strings.Lines(table) {
		row := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		for i := range row {
			row[i] = strings.Trim(strings.TrimSpace(row[i]), "`")
		}
		switch {
		case row[0] == "trainer":
			engines = row[1:]
		case len(row) == len(engines)+1 && row[0] != "---":
			for i, cell := range row[1:] {
				cells++
				says(t, engines[i], row[0], reasons[cell])
			}
		}
	}
	if cells != 20 {
		t.Errorf("%d cells were found, want five trainers with four engines", cells)
	}
}

// says plans a pair and looks for the reason why it cannot work, or for none where that is empty.
func says(t *testing.T, engine, trainer, reason string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "pair.hcl")
	if err := os.WriteFile(file, []byte(pair(engine, trainer, enginetest.Model(t, 0))), 0o600); err != nil {
		t.Fatal(err)
	}
	code, out, errs := command(t, "plan", file)
	refused := strings.Contains(out, "cannot be loaded by") || strings.Contains(out, "takes no weights")
	switch {
	case reason == "" && (refused || !strings.Contains(out, "to create")):
		t.Errorf("%s with %s: the page says that it works, the plan:\n%s%s", engine, trainer, out, errs)
	case reason != "" && (!refused || code == 0 || !strings.Contains(strings.Join(strings.Fields(out), " "), reason)):
		t.Errorf("%s with %s: the plan ends with %d and lacks %q:\n%s%s", engine, trainer, code, reason, out, errs)
	}
}

// TestTheGPUBenchmarkFitsTheRecipe plans what scripts/bench-gpu derives from gsm8k.hcl, for no GPU and for two.
func TestTheGPUBenchmarkFitsTheRecipe(t *testing.T) {
	t.Parallel()
	const derive = `import sys, gsm8k
names, ranks = gsm8k.ENGINES + gsm8k.TRAINERS, int(sys.argv[1])
more = {place: [] for place in gsm8k.PLACES} | {
    "sglang": ['attention_backend = "fa3"'], "weights": ['transport = "ipc"'], "trl.config": ["load_in_4bit = true"],
    "verl.config.actor": ["megatron = { tensor_model_parallel_size = 2 }"]}
print(gsm8k.derive({n: sys.executable for n in names}, {n: {} for n in names}, more, 512, 0, ranks, ranks == 0))`
	for _, ranks := range []string{"0", "2"} {
		cmd := exec.Command("python3", "-c", derive, ranks)
		cmd.Env = append(os.Environ(), "PYTHONDONTWRITEBYTECODE=1",
			"PYTHONPATH="+filepath.Join(repository, "scripts", "bench-gpu"))
		var errs strings.Builder
		cmd.Stderr = &errs
		text, err := cmd.Output()
		if err != nil {
			t.Fatalf("%v: %s", err, errs.String())
		}
		if n := strings.Count(string(text), `devices = ["0", "1"]`); n != 4 && ranks == "2" {
			t.Errorf("%d trainers have two GPUs, want four", n)
		}
		// Planned with an environment that is built in; its own is a program that the benchmark builds.
		recipe := strings.NewReplacer(`environment "scores"`, `environment "arithmetic"`,
			"environment.scores", "environment.arithmetic").Replace(string(text))
		file := filepath.Join(t.TempDir(), "gsm8k.hcl")
		if err := os.WriteFile(file, []byte(recipe), 0o600); err != nil {
			t.Fatal(err)
		}
		for _, trainer := range []string{"grpo", "trl", "verl", "axolotl"} {
			for _, engine := range []string{"vllm", "sglang"} {
				code, out, errs := command(t, planOf(engine, trainer, file)...)
				if code != 0 || !strings.Contains(out, "Plan: 5 to create.") {
					t.Errorf("%s with %s, %s ranks: the plan ends with %d:\n%s%s", engine, trainer, ranks, code, out, errs)
				}
			}
		}
	}
}

// planOf plans a recipe with an engine and a trainer, on whose disk one checkpoint has to find room.
func planOf(engine, trainer, file string) []string {
	checkpoints := "trainer." + trainer + ".policy.checkpoints."
	return []string{"plan", "--var", "engine=" + engine, "--var", "trainer=" + trainer,
		"--set", checkpoints + "keep_last=1", "--set", checkpoints + "keep_best=0", file}
}

// TestOneWordChangesEngineOrTrainer plans gsm8k.hcl with each engine and each trainer: every other block stays.
func TestOneWordChangesEngineOrTrainer(t *testing.T) {
	t.Parallel()
	file := filepath.Join(repository, "recipes", "gsm8k.hcl")
	for _, engine := range []string{"vllm", "sglang"} {
		for _, trainer := range []string{"grpo", "trl", "verl", "axolotl"} {
			code, out, errs := command(t, planOf(engine, trainer, file)...)
			for _, want := range []string{"+ inference." + engine + ".policy[0]", "+ trainer." + trainer + ".policy[0]",
				"+ environment.atropos.gsm8k", "+ sync.weights.policy", "Plan: 5 to create."} {
				if code != 0 || !strings.Contains(out, want) {
					t.Errorf("%s with %s: the plan ends with %d and lacks %q:\n%s%s", engine, trainer, code, want, out, errs)
				}
			}
		}
	}
}
