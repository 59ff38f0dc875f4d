package worker

import (
	"fmt"
	"strings"

	"github.com/zclconf/go-cty/cty"

	"github.com/recipe-rl/recipe/sdk"
	"github.com/recipe-rl/recipe/sdk/kit/modelinfo"
	"github.com/recipe-rl/recipe/sdk/spec"
)

// Held is what a trainer holds in memory from step to step, for the plan: weights, gradients and Adam's two moments,
// all in one precision.
type Held struct {
	Dtype     string // of the weights
	Adapters  bool   // only adapters are trained: their gradients and moments are small and left out
	Reference bool   // a copy of the weights for a KL term
	Sharded   bool   // over the GPUs of the placement; else each has all of it
	Kept      int64  // checkpoints
}

// Estimate adds it to a plan. Activations depend on the length of sequences and on the trainer's own settings; a note
// says that they are not in the sum.
func (h Held) Estimate(model string, placement sdk.Placement, e *sdk.Estimate) []spec.Problem {
	m, known, err := modelinfo.Of(model)
	switch {
	case err != nil:
		return []spec.Problem{{Path: cty.GetAttrPath("model"), Summary: "the model's config.json cannot be read",
			Detail: err.Error()}}
	case !known:
		e.Notes = append(e.Notes, modelinfo.Unknown(model))
		return nil
	}
	resource, share := "gpu_memory", 1.0
	if placement.Count() == 0 {
		resource = "host_memory"
	} else if h.Sharded {
		share = float64(placement.Ranks())
	}
	parameters, width := float64(m.Parameters()), 4.0
	if h.Dtype == "bfloat16" || h.Dtype == "float16" {
		width = 2
	}
	add := func(part string, bytes, over float64, why string) {
		how := fmt.Sprintf("%.1f million parameters × %g bytes%s", parameters/1e6, bytes, why)
		if over > 1 {
			how += fmt.Sprintf(" ÷ %g GPUs", over)
		}
		e.Amounts = append(e.Amounts, sdk.Amount{Resource: resource, Part: part, Value: parameters * bytes / over, How: how})
	}
	add("weights", width, share, "")
	each := width
	if !h.Adapters {
		add("gradients", width, share, "")
		add("optimizer", 2*width, share, " (AdamW)")
		each += 2 * width
	}
	if h.Reference {
		add("reference", width, share, " (a copy for the KL term)")
	}
	if h.Adapters || share > 1 || resource == "host_memory" {
		add("published", width, 1, ", gathered and merged for inference to copy")
		e.Facts["memory_transport_only"] = "published"
	}
	e.Amounts = append(e.Amounts, sdk.Amount{Resource: "disk", Part: "checkpoints",
		Value: float64(max(1, h.Kept)) * parameters * each,
		How:   fmt.Sprintf("%d checkpoints × (weights + optimizer)", max(1, h.Kept))})
	e.Notes = append(e.Notes, "activations are not in the sum: they depend on how many tokens are trained at a time")
	return nil
}

// Quantized is what a plan says of a model that config has held in 4 or 8 bits, under the names of transformers.
func Quantized(config map[string]any) []string {
	if config["load_in_4bit"] != true && config["load_in_8bit"] != true {
		return nil
	}
	return []string{"the first batches are sampled from the weights on disk, not from the quantized ones, until those " +
		"of the first step are served: the correction for stale samples leaves out most of them"}
}

// OneSequence is the note of a plan for a trainer that takes one sequence a rollout, where an environment may send
// rollouts of several.
func OneSequence(environments []spec.Ref) []string {
	var out []string
	for _, ref := range environments {
		if strings.HasPrefix(ref.Address, "environment.agent.") {
			out = append(out, ref.Address+": where a rollout has several sequences, because the program has changed the "+
				"conversation or begun another, the longest is trained; trainer \"grpo\" trains on all of them")
		}
	}
	return out
}
