package trl

import (
	"cmp"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/zclconf/go-cty/cty"

	"github.com/recipe-rl/recipe/sdk"
	"github.com/recipe-rl/recipe/sdk/kit/worker"
	"github.com/recipe-rl/recipe/sdk/spec"
)

// Managed is settings.json, which the program reads as well: which of TRL's settings config may hold, and what to
// write in place of the others.
func Managed() worker.Managed { return worker.ReadManaged(source, "recipe_trl/settings.json") }

// Validate finds what the schema cannot express.
func (t *Trainer) Validate(c Config) []spec.Problem {
	table := Managed()
	problems := append(c.Problems(), c.Checkpoints.Problems()...)
	problems = append(problems, table.Problems(c.Config, "TRL", func(name string) string {
		if strings.HasPrefix(name, "vllm_") && !strings.HasPrefix(name, "vllm_importance_sampling_") {
			return table.Managed["use_vllm"]
		}
		return ""
	}, map[string]any{"old_policy": c.OldPolicy})...)
	if c.BatchSize < 2 {
		problems = append(problems, spec.Problem{Path: cty.GetAttrPath("batch_size"),
			Summary: "TRL compares at least two sequences", Detail: "Set batch_size = 2 or more."})
	}
	return problems
}

// Plan describes what training will need on each GPU, or of the machine when it has none.
func (t *Trainer) Plan(c Config, placement sdk.Placement) (sdk.Estimate, []spec.Problem) {
	facts, err := c.Facts(c.dtype(), worker.Transports(c.adapted()), placement)
	facts["loss"], facts["corrects"], facts["training_only"] = c.text("loss_type", "dapo"), c.corrects(), ""
	if rank := c.rank(); rank > 0 {
		facts["lora_rank"] = strconv.FormatInt(rank, 10)
	}
	e := sdk.Estimate{Facts: facts}
	if err != nil {
		return e, []spec.Problem{{Path: cty.GetAttrPath("model"), Summary: err.Error()}}
	}
	e.Notes = append(e.Notes, "loss "+facts["loss"]+" of TRL; stale samples: "+
		cmp.Or(c.corrects(), "nothing corrects them"))
	e.Notes = append(e.Notes, worker.Quantized(c.Config)...)
	e.Notes = append(e.Notes, worker.OneSequence(c.Environments)...)
	beta, _ := worker.Number(c.Config["beta"])
	problems := worker.Held{Dtype: c.dtype(), Adapters: c.adapted(), Reference: beta > 0 && !c.adapted(),
		Sharded: c.sharded(),
		Kept:    c.Checkpoints.Kept(c.Steps)}.Estimate(c.Model, placement, &e)
	return e, problems
}

// symptoms are failures that this block has settings against.
func symptoms() []worker.Symptom {
	return []worker.Symptom{
		{
			Pattern: regexp.MustCompile(worker.TargetModules), Summary: "the model has no layer that adapters were to go into",
			Remedy:   `correct the names, or write "all-linear"`,
			Settings: []string{"config.lora_target_modules", "config.peft_config.target_modules"},
		},
		{
			Pattern: regexp.MustCompile(`No module named '?(trl|torch|transformers|peft|accelerate|datasets)\b`),
			Summary: "the Python of this block lacks a package that TRL needs",
			Remedy: "run recipe init, which makes an environment for blocks without a runtime; or install trl==" +
				newestVersion + " and peft into runtime.python",
			Settings: []string{worker.Interpreter},
		},
		{
			Pattern: regexp.MustCompile(`(No module named '?|No package metadata was found for (The ')?)` +
				`(bitsandbytes|deepspeed|liger_kernel|kernels)\b`),
			Summary: "the Python of this block lacks a package that these settings of TRL need",
			Remedy: fmt.Sprintf("install it into the environment of the block: runtime { requirements = [%q, …] }",
				"trl=="+newestVersion),
		},
		{
			Pattern: regexp.MustCompile(worker.MachineMemory), Summary: "the machine ran out of memory",
			Remedy: "train adapters (config = { use_peft = true }), lower per_device_train_batch_size, or use a smaller model",
		},
		{
			Pattern: regexp.MustCompile(worker.GPUMemory), Summary: "the GPU ran out of memory",
			Remedy: "lower per_device_train_batch_size in config by half; then use_peft = true, load_in_4bit = true, or more " +
				"GPUs with fsdp or deepspeed: placement { gpus = 2 }",
		},
	}
}
