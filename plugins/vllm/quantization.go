package vllm

import (
	"slices"

	"github.com/zclconf/go-cty/cty"

	"github.com/recipe-rl/recipe/sdk/kit/engine"
	"github.com/recipe-rl/recipe/sdk/spec"
)

// requantized are the values of quantization with which vLLM makes float8 of the weights that it loads, whenever it
// does; others belong to checkpoints that have been quantized before.
var requantized = []string{"fp8", "fp8_per_tensor", "fp8_per_channel", "fp8_per_block"}

func (c Config) requantizes() bool { return slices.Contains(requantized, c.Quantization) }

// quantizationProblems are those of serving in fewer bits than are trained.
func (c Config) quantizationProblems() []spec.Problem {
	switch at := cty.GetAttrPath("quantization"); {
	case c.requantizes() && engine.ServedDtype(c.Dtype, "") == "float32":
		return []spec.Problem{{
			Path: at, Summary: "quantization = \"" + c.Quantization + "\" does not go with dtype = \"" + c.Dtype + "\"",
			Detail: "vLLM quantizes 16-bit weights only. Set dtype to \"bfloat16\", or leave it out.",
		}}
	case c.Quantization != "" && !c.requantizes() && c.EnableSleepMode:
		return []spec.Problem{{
			Path: at, Summary: "a server of weights that others have quantized takes new ones by restart only", Warning: true,
			Detail: "Each sync then costs the start of a server, about a minute. Leave quantization out, or set it to \"fp8\" " +
				"or \"fp8_per_channel\": vLLM quantizes what it loads, new weights too.",
		}}
	}
	return nil
}
