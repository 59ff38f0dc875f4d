package e2e

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/zclconf/go-cty/cty"

	"github.com/recipe-rl/recipe/plugins/atropos"
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
	api, inference := plugintest.Harness(t, trajectories.Plugin()), plugintest.Harness(t, tiny.Inference())
	environment, trainer, sync := plugintest.Harness(t, atropos.Plugin()), plugintest.Harness(t, tiny.Trainer()),
		plugintest.Harness(t, weights.Definition())
	api.Start(configure(t, api.Def, func(*trajectories.Block) {}))
	api.Ready()
	inference.Start(configure(t, inference.Def, func(*tiny.InferenceConfig) {}))
	inference.Ready()
	book := api.Reference()
	environment.Start(cty.ObjectVal(map[string]cty.Value{
		"script": cty.StringVal(script), "inference": inference.Reference().Values, "trajectories": book.Values,
		"group_size":       cty.NumberIntVal(4),
		"keep_same_scores": cty.True, // a model this small may give equal answers
	}), func(r *pluginpb.StartRequest) {
		r.Runtime, r.Environment = &pluginpb.Runtime{Python: python}, map[string]string{"HF_HUB_OFFLINE": "1"}
	})
	// Its imports take a minute on a busy machine, which is the time limit of the harness.
	for deadline := time.Now().Add(5 * time.Minute); environment.Status().GetPhase() != string(sdk.Ready); time.Sleep(
		50 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("the environment is not ready after 5 minutes: %v", environment.Events())
		}
	}
	const steps = 3
	trainer.Start(configure(t, trainer.Def, func(c *tiny.TrainerConfig) {
		c.Model, c.Environments, c.Trajectories = inference.Output("model"), []spec.Ref{environment.Reference()}, &book
		c.Steps, c.BatchSize = steps, 16
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
	sample := environment.Wait("sample", func(e *pluginpb.Event) bool { return e.GetSample() != nil }).GetSample()
	if len(sample.GetPrompt()) != len("What is 3+4? Answer: ") {
		t.Errorf("the sample's prompt is %q", sample.GetPrompt())
	}
}
