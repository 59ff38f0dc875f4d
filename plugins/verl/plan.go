package verl

import (
	"context"
	"fmt"
	"math"

	"github.com/zclconf/go-cty/cty"

	"github.com/recipe-rl/recipe/sdk"
	"github.com/recipe-rl/recipe/sdk/kit/modelinfo"
	"github.com/recipe-rl/recipe/sdk/kit/worker"
	"github.com/recipe-rl/recipe/sdk/spec"
)

// Validate finds what the schema cannot express.
func (t *Trainer) Validate(c Config) []spec.Problem {
	problems := append(c.Problems(), c.Checkpoints.Problems()...)
	problems = append(problems, c.tooLong()...)
	if c.Backend == "megatron" {
		problems = append(problems, spec.Problem{Path: cty.GetAttrPath("backend"), Warning: true,
			Summary: "verl's Megatron engine has not been run by this project",
			Detail:  "It needs a GPU, megatron-core, mbridge and transformer-engine. fsdp2 is what is tested."})
	}
	return problems
}

// tooLong warns of sequences that fit into no micro-batch: verl ends with the first batch that has one.
func (c Config) tooLong() []spec.Problem {
	const actor = "actor_rollout_ref.actor."
	_, sized := worker.Number(c.setting(actor + "ppo_micro_batch_size_per_gpu"))
	if dynamic, said := c.setting(actor + "use_dynamic_bsz").(bool); said && !dynamic || !said && sized {
		return nil
	}
	number := func(name string, other float64) float64 {
		if n, said := worker.Number(c.setting(actor + name)); said {
			return n
		}
		return other
	}
	ranks := number("fsdp_config.ulysses_sequence_parallel_size", number("ulysses_sequence_parallel_size", 1))
	tokens := number("ppo_max_token_len_per_gpu", 16384)
	room := min(tokens, number("ppo_infer_max_token_len_per_gpu", tokens)) * ranks
	if float64(c.MaxLength) <= room || c.Backend == "megatron" {
		return nil
	}
	return []spec.Problem{{Path: cty.GetAttrPath("max_length"), Warning: true,
		Summary: fmt.Sprintf("a sequence of %d tokens fits into no micro-batch", c.MaxLength),
		Detail: fmt.Sprintf("verl fills micro-batches with at most %g tokens, and ends at a longer sequence. Set "+
			"config = { actor = { ppo_max_token_len_per_gpu = %d } } or more, where the GPU has the memory, or lower "+
			"max_length.", room, int64(math.Ceil(float64(c.MaxLength)/ranks)))}}
}

// Plan asks the program what is wrong with verl's settings, and says what training will need on each GPU, or of the
// machine when it has none.
func (t *Trainer) Plan(c Config, placement sdk.Placement) (sdk.Estimate, []spec.Problem) {
	dtype := "float32"
	switch d, _ := c.setting("actor_rollout_ref.actor.fsdp_config.model_dtype").(string); d {
	case "bf16", "bfloat16":
		dtype = "bfloat16"
	case "fp16", "float16":
		dtype = "float16"
	}
	if c.lora() > 0 {
		dtype = "bfloat16" // verl merges adapters in that
	}
	facts, err := c.Facts(dtype, transports, placement)
	facts["corrects"], facts["training_only"] = c.corrects(), "gradients,optimizer"
	facts["memory_transport_only"] = published
	e := sdk.Estimate{Facts: facts, Notes: worker.OneSequence(c.Environments)}
	var problems []spec.Problem
	if err != nil {
		problems = append(problems, spec.Problem{Path: cty.GetAttrPath("model"), Summary: err.Error()})
	}
	wrong, err := worker.Check(context.Background(), placement.Python, module, source,
		map[string]any{"config": c.verl(), "backend": c.Backend})
	if err != nil {
		e.Notes = append(e.Notes, "verl's settings in config are not checked yet: "+err.Error())
	}
	problems = append(problems, wrong...)
	m, known, err := modelinfo.Of(c.Model)
	switch {
	case err != nil:
		return e, append(problems, spec.Problem{Path: cty.GetAttrPath("model"),
			Summary: "the model's config.json cannot be read", Detail: err.Error()})
	case !known:
		e.Notes = append(e.Notes, modelinfo.Unknown(c.Model))
		return e, problems
	}
	e.Amounts = c.amounts(float64(m.Parameters()), dtype, placement)
	return e, problems
}

// published is the copy of the weights that inference copies from: verl gathers its shards into it.
const published = "published"

// lora is the rank of the adapters; 0: all weights are trained.
func (c Config) lora() float64 {
	switch rank := c.setting("actor_rollout_ref.model.lora_rank").(type) {
	case int64:
		return float64(rank)
	case float64:
		return rank
	}
	return 0
}

// amounts are what stays allocated while training: verl keeps weights, gradients and Adam's two states in float32, and
// shards them over the GPUs. Activations depend on ppo_max_token_len_per_gpu and are not estimated.
func (c Config) amounts(parameters float64, dtype string, placement sdk.Placement) []sdk.Amount {
	resource, ranks, over := "gpu_memory", float64(placement.Ranks()), "GPUs"
	if placement.Count() == 0 {
		resource, over = "host_memory", "machines"
	}
	var out []sdk.Amount
	add := func(part string, bytes float64) {
		if c.offloaded(part) {
			return
		}
		how := fmt.Sprintf("%.1f million parameters × %g bytes", parameters/1e6, bytes)
		if ranks > 1 {
			how += fmt.Sprintf(" ÷ %g %s", ranks, over)
		}
		out = append(out, sdk.Amount{Resource: resource, Part: part, Value: parameters * bytes / ranks, How: how})
	}
	add("weights", 4)
	if c.lora() == 0 {
		add("gradients", 4)
		add("optimizer", 8)
	}
	width, kept := 4.0, c.Checkpoints.Kept(c.Steps)
	if dtype != "float32" {
		width = 2
	}
	how := fmt.Sprintf("%.1f million parameters × %g bytes: gathered, for inference to copy", parameters/1e6, width)
	out = append(out, sdk.Amount{Resource: resource, Part: published, Value: parameters * width, How: how})
	each := 4 + width
	if c.lora() == 0 {
		each += 8
	}
	return append(out, sdk.Amount{Resource: "disk", Part: "checkpoints",
		Value: float64(kept) * parameters * each,
		How:   fmt.Sprintf("%d checkpoints × (verl's shards + the model for inference)", kept)})
}

// offloaded reports whether verl keeps a part in the host's memory between its uses.
func (c Config) offloaded(part string) bool {
	name := map[string]string{"weights": "param_offload", "optimizer": "optimizer_offload"}[part]
	if name == "" {
		return false
	}
	on, _ := c.setting("actor_rollout_ref.actor.fsdp_config." + name).(bool)
	return on
}
