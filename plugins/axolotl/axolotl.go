// Package axolotl trains a policy with Axolotl's GRPO trainer. The program is recipe_axolotl, a Python package that it
// brings along and that is a plugin of Axolotl; sdk/kit/worker runs it. What is here is the block.
package axolotl

import (
	"cmp"
	"embed"
	"io/fs"
	"regexp"
	"strconv"

	"github.com/zclconf/go-cty/cty"

	"github.com/recipe-rl/recipe/sdk"
	"github.com/recipe-rl/recipe/sdk/kit/interpreter"
	"github.com/recipe-rl/recipe/sdk/kit/worker"
	"github.com/recipe-rl/recipe/sdk/spec"
	"github.com/recipe-rl/recipe/sdk/trainer"
)

// version is the Axolotl that this plugin is run with. Axolotl pins all that it stands on, TRL among it.
const version = "0.19.0"

// Plugin defines `trainer "axolotl"`.
func Plugin() *sdk.Definition {
	return trainer.New("axolotl", "Trains a model with Axolotl's GRPO trainer",
		func() trainer.Plugin[Config] { return &Trainer{Trainer: worker.New(program)} },
		sdk.WithOutputs(worker.Outputs{}),
		worker.Metrics(spec.Since("as TRL reports it", spec.Metrics("trl/*", "", "what TRL reports, by its names")),
			spec.Metrics("*", "", "what the trainer reports besides")),
		sdk.WithPackages(packages),
		sdk.WithEnvironmentVariables("HF_*", "HUGGING_FACE_HUB_TOKEN", "WANDB_*", "AXOLOTL_*"),
		sdk.WithDoc("Trains a transformers model with Axolotl "+version+": config is an Axolotl configuration, such as "+
			"yamldecode(file(\"train.yaml\")). Samples come from environments, weights leave through a sync block. See "+
			"docs/axolotl.md."))
}

// Config is the body of `trainer "axolotl" "name"`. What all trainers have is in Common; everything else is Axolotl's.
type Config struct {
	worker.Common

	Config      map[string]any      `recipe:"config" change:"resume" doc:"An Axolotl configuration: an object, or yamldecode(file(\"train.yaml\")). A setting of what recipe does itself (base_model, datasets, vllm, rewards, saving) is refused with what to write instead"`
	OldPolicy   string              `recipe:"old_policy" worker:"old_policy" default:"trainer" enum:"trainer,rollout" change:"resume" doc:"Ratios against the trainer's log-probabilities before the step, corrected for the sampler's as TRL does with vLLM, or against the sampler's"`
	Checkpoints *worker.Checkpoints `recipe:"checkpoints,block" doc:"When checkpoints are written and which are kept"`
}

// CheckpointStore implements trainer.Stored.
func (c Config) CheckpointStore() string { return c.Checkpoints.StoreAddress() }

//go:embed recipe_axolotl/*.py recipe_axolotl/settings.json
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

// packages is what `recipe init` prepares, apart from what inference needs: Axolotl pins about sixty packages exactly,
// and imports triton without a GPU, too.
func packages(bool) sdk.Packages {
	return sdk.Packages{Needs: []string{"axolotl", "torch"}, Requirements: []string{"axolotl==" + version}}
}

// program is what a block runs.
func program(req sdk.Request[Config]) (worker.Program, error) {
	c := req.Config
	c.Model = worker.Local(c.Model, req.RecipeDir)
	settings := worker.Settings(c)
	if settings["config"] = c.Config; c.Config == nil {
		settings["config"] = map[string]any{}
	}
	return worker.Program{
		Module: "recipe_axolotl", Source: []fs.FS{source}, Packages: packages(interpreter.GPU()),
		Environment: c.Variables(), Model: req.Config.Model, Settings: settings, Defaults: worker.Defaults[Config](),
		Trajectories: c.Trajectories, Transports: worker.Transports(c.adapted()), Corrects: c.corrects(),
		PublishDtype: c.PublishDtype, UntieEmbeddings: c.UntieEmbeddings, Symptoms: symptoms(),
	}, nil
}

// adapted reports whether adapters are trained instead of the weights: Axolotl's adapter = "lora" or "qlora".
func (c Config) adapted() bool {
	kind, _ := c.Config["adapter"].(string)
	return kind != ""
}

// trl is the section of TRL's settings.
func (c Config) trl() map[string]any {
	section, _ := c.Config["trl"].(map[string]any)
	return section
}

// corrects says what makes up for tokens that an older policy version sampled; empty: nothing does, or no such token is
// trained on.
func (c Config) corrects() string {
	switch on, said := c.trl()["vllm_importance_sampling_correction"].(bool); {
	case c.MaxStaleness != nil && *c.MaxStaleness < 1, said && !on && c.OldPolicy != "rollout":
		return ""
	case c.OldPolicy == "rollout":
		return "the ratio is against the sampler's log-probabilities"
	}
	return "TRL's importance sampling correction"
}

// Validate finds what the schema cannot express.
func (t *Trainer) Validate(c Config) []spec.Problem {
	managed := worker.ReadManaged(source, "recipe_axolotl/settings.json")
	managed.Extended = c.Config["plugins"] != nil // which bring settings of their own; the program knows them
	problems := append(append(c.Problems(), c.Checkpoints.Problems()...), managed.Problems(c.Config, "Axolotl", nil,
		map[string]any{"old_policy": c.OldPolicy})...)
	if c.BatchSize < 2 {
		problems = append(problems, spec.Problem{Path: cty.GetAttrPath("batch_size"),
			Summary: "TRL compares at least two sequences", Detail: "Set batch_size = 2 or more."})
	}
	return problems
}

// Plan describes what training will need on each GPU, or of the machine when it has none.
func (t *Trainer) Plan(c Config, placement sdk.Placement) (sdk.Estimate, []spec.Problem) {
	// Axolotl loads weights in 16 bits where it trains in 16 bits, and merges adapters in them.
	dtype := "float32"
	if bf16, said := c.Config["bf16"]; (said && bf16 != false) || (!said && placement.Count() > 0) {
		dtype = "bfloat16"
	}
	facts, err := c.Facts(dtype, worker.Transports(c.adapted()), placement)
	facts["corrects"], facts["training_only"] = c.corrects(), ""
	if rank, said := c.Config["lora_r"].(int64); said && c.adapted() {
		facts["lora_rank"] = strconv.FormatInt(rank, 10)
	}
	e := sdk.Estimate{Facts: facts}
	if err != nil {
		return e, []spec.Problem{{Path: cty.GetAttrPath("model"), Summary: err.Error()}}
	}
	e.Notes = append(e.Notes, "stale samples: "+cmp.Or(c.corrects(), "nothing corrects them"))
	e.Notes = append(e.Notes, worker.Quantized(c.Config)...)
	e.Notes = append(e.Notes, worker.OneSequence(c.Environments)...)
	return e, worker.Held{Dtype: dtype, Adapters: c.adapted(), Kept: c.Checkpoints.Kept(c.Steps),
		Sharded: c.Config["fsdp_config"] != nil || c.Config["deepspeed"] != nil}.Estimate(c.Model, placement, &e)
}

// symptoms are failures that this block has settings against.
func symptoms() []worker.Symptom {
	return []worker.Symptom{
		{
			Pattern: regexp.MustCompile(worker.TargetModules), Summary: "the model has no layer that adapters were to go into",
			Remedy:   "correct the names, or write lora_target_linear = true",
			Settings: []string{"config.lora_target_modules"},
		},
		{
			Pattern: regexp.MustCompile(`No module named '?(axolotl|trl|torch|transformers|peft|accelerate|datasets)\b`),
			Summary: "the Python of this block lacks a package that Axolotl needs",
			Remedy: "run recipe init, which makes an environment for blocks without a runtime; or install axolotl==" + version +
				" into runtime.python",
			Settings: []string{worker.Interpreter},
		},
		{
			Pattern: regexp.MustCompile(worker.MachineMemory), Summary: "the machine ran out of memory",
			Remedy: "train adapters (config = { adapter = \"lora\" }), lower micro_batch_size, or use a smaller model",
		},
		{
			Pattern: regexp.MustCompile(worker.GPUMemory), Summary: "the GPU ran out of memory",
			Remedy: "lower micro_batch_size in config by half; then adapter = \"qlora\", or more GPUs with deepspeed or " +
				"fsdp_config: placement { gpus = 2 }",
		},
	}
}
