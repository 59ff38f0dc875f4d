// Package trl trains a policy with TRL's GRPOTrainer. The program is recipe_trl, a Python package that it brings along;
// sdk/kit/worker runs it. What is here is the block: its attributes, what is wrong with them, what they need.
package trl

import (
	"embed"
	"io/fs"

	"github.com/recipe-rl/recipe/sdk"
	"github.com/recipe-rl/recipe/sdk/kit/interpreter"
	"github.com/recipe-rl/recipe/sdk/kit/worker"
	"github.com/recipe-rl/recipe/sdk/spec"
	"github.com/recipe-rl/recipe/sdk/trainer"
)

// Plugin defines `trainer "trl"`.
func Plugin() *sdk.Definition {
	return trainer.New("trl", "Trains a model with TRL's GRPOTrainer",
		func() trainer.Plugin[Config] { return &Trainer{Trainer: worker.New(program)} },
		sdk.WithOutputs(worker.Outputs{}),
		worker.Metrics(spec.Since("as TRL reports it", spec.Metrics("trl/*", "", "what TRL reports, by its names")),
			spec.Metrics("*", "", "what the trainer reports besides")),
		sdk.WithPackages(packages),
		sdk.WithEnvironmentVariables("HF_*", "HUGGING_FACE_HUB_TOKEN", "WANDB_*", "TRACKIO_*"),
		sdk.WithDoc("Trains a transformers model with TRL "+oldestVersion+" to "+newestVersion+": its losses, LoRA and "+
			"QLoRA by peft, DeepSpeed and FSDP by accelerate, in TRL's own names (config). Samples come from environments, "+
			"weights leave through a sync block. See docs/trl.md."))
}

//go:embed recipe_trl/*.py recipe_trl/settings.json
var source embed.FS

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

// program is what a block runs.
func program(req sdk.Request[Config]) (worker.Program, error) {
	c := req.Config
	c.Model = worker.Local(c.Model, req.RecipeDir)
	settings := worker.Settings(c)
	settings["config"] = c.trl()
	return worker.Program{
		Module: "recipe_trl", Source: []fs.FS{source}, Packages: packages(interpreter.GPU()), Environment: c.Variables(),
		Model: req.Config.Model, Settings: settings, Defaults: worker.Defaults[Config](), Trajectories: c.Trajectories,
		Transports: worker.Transports(c.adapted()), Corrects: c.corrects(), PublishDtype: c.PublishDtype,
		UntieEmbeddings: c.UntieEmbeddings, Symptoms: symptoms(),
	}, nil
}
