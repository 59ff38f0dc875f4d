package sglang

import (
	"strconv"
	"strings"

	"github.com/recipe-rl/recipe/sdk"
	"github.com/recipe-rl/recipe/sdk/kit/engine"
	"github.com/recipe-rl/recipe/sdk/spec"
)

// Plan describes what the block will need of each GPU, or of the machine when it has none.
func (s *Server) Plan(c Config, placement sdk.Placement) (sdk.Estimate, []spec.Problem) {
	facts := map[string]string{
		"weights": "transformers", "logprobs_mode": "processed", "prompt_logprobs": "false", // /v1/completions has none
		"sleeps": strconv.FormatBool(c.EnableMemorySaver && c.Device != "cpu"),
		// names of these settings in plan's messages about this block
		"name_of_max_model_len": "context_length", "name_of_gpu_memory_utilization": "mem_fraction_static",
		"name_of_enable_sleep_mode": "enable_memory_saver",
	}
	if c.MemFractionStatic > 0 { // of the whole GPU, as vLLM's gpu_memory_utilization
		facts["gpu_memory_utilization"] = strconv.FormatFloat(c.MemFractionStatic, 'g', -1, 64)
	}
	if c.EnableLora {
		facts["max_lora_rank"] = strconv.FormatInt(c.MaxLoraRank, 10)
	}
	sizing := engine.Sizing{Graphs: !c.DisableCudaGraph, GraphsOff: "disable_cuda_graph = true"}
	if strings.HasPrefix(c.KVCacheDtype, "fp8") {
		sizing.CacheElementBytes = 1
	}
	if c.MaxTotalTokens > 0 {
		sizing.Cache = &engine.Cache{Tokens: c.MaxTotalTokens,
			How: "max_total_tokens = " + strconv.FormatInt(c.MaxTotalTokens, 10)}
	}
	return c.spec().Estimate(engine.Planned{
		Dtype:        c.Dtype,
		Length:       engine.Factor{Attribute: "context_length", Value: c.ContextLength},
		LengthFree:   c.JSONModelOverrideArgs != nil,
		LengthRemedy: ", or extend the model on purpose with json_model_override_args",
		Sizing:       sizing, Facts: facts,
	}, placement)
}
