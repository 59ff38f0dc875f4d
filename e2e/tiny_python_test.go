package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/zclconf/go-cty/cty"

	"github.com/recipe-rl/recipe/plugins/agent"
	"github.com/recipe-rl/recipe/plugins/atropos"
	"github.com/recipe-rl/recipe/plugins/reward"
	weights "github.com/recipe-rl/recipe/plugins/sync"
	"github.com/recipe-rl/recipe/plugins/tiny"
	"github.com/recipe-rl/recipe/plugins/trajectories"
	"github.com/recipe-rl/recipe/sdk"
	"github.com/recipe-rl/recipe/sdk/pluginpb"
	"github.com/recipe-rl/recipe/sdk/plugintest"
	"github.com/recipe-rl/recipe/sdk/spec"
)

// The tiny model provides the tokenizer of an unmodified Atropos environment, answers it, and learns from its groups.
func TestTinyWithAnAtroposEnvironment(t *testing.T) {
	t.Parallel()
	python, err := filepath.Abs(filepath.Join("..", ".cache", "venv-atropos", "bin", "python"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(python); err != nil {
		t.Skip("no .cache/venv-atropos with atroposlib; scripts/venv.sh atropos makes it")
	}
	script, err := filepath.Abs(filepath.Join("..", "recipes", "environments", "addition.py"))
	if err != nil {
		t.Fatal(err)
	}
	environment := trainTinyOn(t, atropos.Plugin(), map[string]cty.Value{
		"script":           cty.StringVal(script),
		"keep_same_scores": cty.True, // a model this small may give equal answers
	}, func(r *pluginpb.StartRequest) {
		r.Runtime, r.Environment = &pluginpb.Runtime{Python: python}, map[string]string{"HF_HUB_OFFLINE": "1"}
	})
	sample := environment.Wait("sample", func(e *pluginpb.Event) bool { return e.GetSample() != nil }).GetSample()
	if len(sample.GetPrompt()) != len("What is 3+4? Answer: ") {
		t.Errorf("the sample's prompt is %q", sample.GetPrompt())
	}
}

// The tiny model learns from a reward function in Python.
func TestTinyWithAPythonEnvironment(t *testing.T) {
	t.Parallel()
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("python3 is not in PATH")
	}
	recipes, err := filepath.Abs(filepath.Join("..", "recipes"))
	if err != nil {
		t.Fatal(err)
	}
	environment := trainTinyOn(t, reward.Plugin(), map[string]cty.Value{
		"dataset":  cty.StringVal("environments/reward/sums.jsonl"),
		"function": cty.StringVal("environments/reward/rewards.py:digits"), "max_tokens": cty.NumberIntVal(4),
		"drop_uninformative": cty.False,
	}, func(r *pluginpb.StartRequest) { r.Runtime, r.RecipeDir = &pluginpb.Runtime{Python: python}, recipes })
	environment.Wait("sample", func(e *pluginpb.Event) bool { return e.GetSample() != nil })
}

// The tiny model learns from what an unmodified program did with it.
func TestTinyWithAnAgent(t *testing.T) {
	t.Parallel()
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("python3 is not in PATH")
	}
	recipes, err := filepath.Abs(filepath.Join("..", "recipes"))
	if err != nil {
		t.Fatal(err)
	}
	text := func(list ...string) cty.Value {
		var out []cty.Value
		for _, s := range list {
			out = append(out, cty.StringVal(s))
		}
		return cty.ListVal(out)
	}
	environment := trainTinyOn(t, agent.Plugin(), map[string]cty.Value{
		"command": text("python", "environments/agent/loop.py", "${task.digits}"),
		"tasks":   cty.StringVal("environments/agent/tasks.jsonl"),
		"reward":  cty.StringVal("environments/agent/reward.py:score"), "max_tokens": cty.NumberIntVal(2),
		"drop_uninformative": cty.False,
		"sandbox":            cty.ObjectVal(map[string]cty.Value{"kind": cty.StringVal("none")}), // it has no tools
	}, func(r *pluginpb.StartRequest) { r.Runtime, r.RecipeDir = &pluginpb.Runtime{Python: python}, recipes })
	environment.Wait("sample", func(e *pluginpb.Event) bool { return e.GetSample() != nil })
}

// trainTinyOn runs a tiny trainer for three steps on the groups of an environment, whose weights are served after each.
func trainTinyOn(t *testing.T, def *sdk.Definition, config map[string]cty.Value, option plugintest.Option,
) (environment *plugintest.Block) {
	t.Helper()
	api, inference := plugintest.Harness(t, trajectories.Plugin()), plugintest.Harness(t, tiny.Inference())
	trainer, sync := plugintest.Harness(t, tiny.Trainer()), plugintest.Harness(t, weights.Definition())
	environment = plugintest.Harness(t, def)
	api.Start(configure(t, api.Def, func(*trajectories.Block) {}))
	api.Ready()
	inference.Start(configure(t, inference.Def, func(*tiny.InferenceConfig) {}))
	inference.Ready()
	book := api.Reference()
	config["inference"], config["trajectories"] = inference.Reference().Values, book.Values
	config["group_size"] = cty.NumberIntVal(4)
	body, err := def.Schema.Conform(cty.ObjectVal(config))
	if err != nil {
		t.Fatal(err)
	}
	environment.Start(def.Schema.ApplyDefaults(body), option)
	// Its imports take a minute on a busy machine, which is the time limit of the harness.
	for deadline := time.Now().Add(5 * time.Minute); environment.Status().GetPhase() != string(sdk.Ready); time.Sleep(
		50 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("the environment is not ready after 5 minutes: %v", environment.Events())
		}
	}
	trainer.Start(configure(t, trainer.Def, func(c *tiny.TrainerConfig) {
		c.Model, c.Environments, c.Trajectories = inference.Output("model"), []spec.Ref{environment.Reference()}, &book
		c.Steps, c.BatchSize = 3, 16
	}), func(r *pluginpb.StartRequest) { r.SyncedBy = []string{sync.Address} })
	trainer.Ready()
	sync.Start(configure(t, sync.Def, func(c *weights.Config) {
		c.Trainer, c.Inference = trainer.Reference(), []spec.Ref{inference.Reference()}
	}))
	trainer.WaitPhase(sdk.Completed)
	for _, e := range trainer.Events() {
		if l := e.GetLog(); l.GetLevel() == "warn" {
			t.Errorf("the trainer warns: %s", l.GetMessage())
		}
	}
	return environment
}
