// Package verl trains a policy with verl's model engine: FSDP2 or Megatron, its policy losses and advantage estimators,
// without Ray's cluster and without its rollout. The program is recipe_verl, a Python package that it brings along;
// sdk/kit/worker runs it. What is here is the block.
package verl

import (
	"embed"
	"io/fs"

	"github.com/recipe-rl/recipe/sdk"
	"github.com/recipe-rl/recipe/sdk/kit/interpreter"
	"github.com/recipe-rl/recipe/sdk/kit/worker"
	"github.com/recipe-rl/recipe/sdk/spec"
	"github.com/recipe-rl/recipe/sdk/trainer"
)

// Plugin defines `trainer "verl"`.
func Plugin() *sdk.Definition {
	return trainer.New("verl", "Trains a model with verl's engines and algorithms",
		func() trainer.Plugin[Config] { return &Trainer{Trainer: worker.New(program)} },
		sdk.WithOutputs(worker.Outputs{}),
		worker.Metrics(spec.Since("as verl reports it", spec.Metrics("verl/*", "", "what verl reports, by its names")),
			spec.Metrics("*", "", "what the trainer reports besides")),
		sdk.WithPackages(packages),
		sdk.WithEnvironmentVariables("HF_*", "HUGGING_FACE_HUB_TOKEN"),
		sdk.WithDoc("Trains a transformers model with verl "+oldestVersion+" to "+newestVersion+": its model engines, "+
			"policy losses, advantage estimators and rollout correction, in verl's own names (config). Neither Ray nor "+
			"verl's rollout runs. See docs/verl.md."))
}

//go:embed recipe_verl/*.py recipe_verl/instead.json
var source embed.FS

const module = "recipe_verl"

// Trainer is one trainer block.
type Trainer struct{ worker.Trainer[Config] }

var (
	_ trainer.Plugin[Config] = (*Trainer)(nil)
	_ sdk.Checkpointer       = (*Trainer)(nil)
	_ sdk.Updater[Config]    = (*Trainer)(nil)
	_ sdk.Planner[Config]    = (*Trainer)(nil)
	_ sdk.Validator[Config]  = (*Trainer)(nil)
	_ sdk.NodesUser          = (*Trainer)(nil)
)

// transports are the ways in which the weights leave verl's engine, which hands out whole tensors.
var transports = worker.Transports(false)

// program is what a block runs.
func program(req sdk.Request[Config]) (worker.Program, error) {
	c := req.Config
	c.Model = worker.Local(c.Model, req.RecipeDir)
	settings := worker.Settings(c)
	settings["config"] = c.verl()
	return worker.Program{
		Module: module, Source: []fs.FS{source}, Packages: packages(interpreter.GPU()), Environment: c.Variables(),
		Model: req.Config.Model, Settings: settings, Defaults: worker.Defaults[Config](), Trajectories: c.Trajectories,
		Transports: transports, Corrects: c.corrects(), PublishDtype: c.PublishDtype, UntieEmbeddings: c.UntieEmbeddings,
		Symptoms: symptoms(),
	}, nil
}
