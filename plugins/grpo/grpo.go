// Package grpo trains a policy by GRPO and its relatives. The mathematics is in worker, a Python package that it brings
// along; sdk/kit/worker runs it. What is here is the block: its attributes, what is wrong with them, what they
// need, and how the program is told.
package grpo

import (
	"embed"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"

	"github.com/recipe-rl/recipe/sdk"
	"github.com/recipe-rl/recipe/sdk/kit/interpreter"
	"github.com/recipe-rl/recipe/sdk/kit/worker"
	"github.com/recipe-rl/recipe/sdk/spec"
	"github.com/recipe-rl/recipe/sdk/trainer"
)

// Plugin defines `trainer "grpo"`.
func Plugin() *sdk.Definition {
	return trainer.New("grpo", "Trains a model by GRPO in PyTorch",
		func() trainer.Plugin[Config] { return &Trainer{Trainer: worker.New(program)} },
		worker.Describe[Config](described().Settings),
		sdk.WithOutputs(worker.Outputs{}),
		metrics(),
		sdk.WithPackages(packages),
		sdk.WithEnvironmentVariables("HF_*", "HUGGING_FACE_HUB_TOKEN"),
		sdk.WithDoc("Trains a transformers model by GRPO and its relatives on the groups that environments send. Needs "+
			"torch and transformers (and peft for LoRA) in its Python: runtime { python = … } or requirements. "+
			"What settings of TRL and verl are called here: docs/from-verl.md."))
}

//go:embed worker/*.py recipe_grpo.py
var workerSource embed.FS

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
	if r := c.Reference; r != nil && r.Path != "" {
		moved := *r
		moved.Path = worker.Local(r.Path, req.RecipeDir)
		c.Reference = &moved
	}
	environment := c.Variables()
	if folders := c.imports(req.RecipeDir); len(folders) > 0 {
		environment[importsVariable] = strings.Join(folders, string(filepath.ListSeparator))
	}
	if err := c.pin(req.RecipeDir, filepath.Join(req.Dir, "imports")); err != nil {
		return worker.Program{}, err
	}
	return worker.Program{
		Module: "worker", Source: []fs.FS{workerSource}, Packages: packages(interpreter.GPU()), Environment: environment,
		Model: req.Config.Model, Settings: worker.Settings(c), Defaults: described().Settings.Defaults(),
		Known: c.teacher, Trajectories: c.Trajectories,
		Transports: worker.Transports(c.adapted()), Corrects: c.corrects(), PublishDtype: c.PublishDtype,
		UntieEmbeddings: c.UntieEmbeddings, Symptoms: symptoms(),
	}, nil
}

// importsVariable has the folders of the user's own files, whose imports are looked for there: what runs is a copy.
const importsVariable = "RECIPE_GRPO_IMPORTS"

// imports are the folders of the files of a user's own functions.
func (c Config) imports(recipeDir string) (folders []string) {
	var files []string
	if c.Loss != nil {
		files = append(files, c.Loss.Import)
	}
	if c.Advantages != nil {
		files = append(files, c.Advantages.Import)
	}
	for _, text := range files {
		code, err := spec.ParseCode(text)
		if err != nil {
			continue // none is named
		}
		folder := filepath.Dir(code.File)
		if !filepath.IsAbs(folder) {
			folder = filepath.Join(recipeDir, folder)
		}
		if !slices.Contains(folders, folder) {
			folders = append(folders, folder)
		}
	}
	return folders
}

// pin replaces the files of a user's own functions by copies of what was applied, so that every rank and every later
// start runs that.
func (c *Config) pin(recipeDir, folder string) (err error) {
	if c.Loss != nil {
		moved := *c.Loss
		if moved.Import, err = pinned("loss", moved.Import, recipeDir, folder); err != nil {
			return err
		}
		c.Loss = &moved
	}
	if c.Advantages != nil {
		moved := *c.Advantages
		if moved.Import, err = pinned("advantages", moved.Import, recipeDir, folder); err != nil {
			return err
		}
		c.Advantages = &moved
	}
	return nil
}

// pinned is a reference to a function as the worker reads it, PATH:FUNCTION.
func pinned(block, text, recipeDir, folder string) (string, error) {
	if text == "" {
		return "", nil
	}
	code, err := spec.ParseCode(text)
	if err != nil {
		return "", fmt.Errorf("%s.import: %w", block, err)
	}
	path, err := code.Pinned(recipeDir, folder)
	if err != nil {
		return "", &sdk.Error{
			Summary: block + ".import cannot be used", Err: err,
			Remedy: "run recipe apply again; the plan shows what has changed",
		}
	}
	return path + ":" + code.Function, nil
}

// adapted reports whether adapters are trained instead of the weights.
func (c Config) adapted() bool { return c.Lora != nil && c.Lora.Rank > 0 }
