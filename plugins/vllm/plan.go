package vllm

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/zclconf/go-cty/cty"

	"github.com/recipe-rl/recipe/sdk"
	"github.com/recipe-rl/recipe/sdk/kit/engine"
	"github.com/recipe-rl/recipe/sdk/spec"
)

// Plan describes what the block will need of each GPU, or of the machine when it has none.
func (s *Server) Plan(c Config, placement sdk.Placement) (sdk.Estimate, []spec.Problem) {
	facts := map[string]string{"weights": "transformers",
		"nondeterminism": "time decides which requests share a batch, and vLLM's kernels round differently in another one; " +
			"VLLM_BATCH_INVARIANT = \"1\" in environment_variables changes that on the GPUs for which vLLM has such kernels",
		"sleeps": strconv.FormatBool(c.EnableSleepMode && (placement.Count() > 0 || c.CPUKVCacheSpace == 0))}
	if c.GPUMemoryUtilization > 0 {
		facts["gpu_memory_utilization"] = strconv.FormatFloat(c.GPUMemoryUtilization, 'g', -1, 64)
	}
	if c.EnableLora {
		facts["max_lora_rank"] = strconv.FormatInt(c.MaxLoraRank, 10)
	}
	if c.LogprobsMode != "" {
		facts["logprobs_mode"] = strings.TrimSuffix(c.LogprobsMode, "_logprobs")
	}
	e, problems := c.spec().Estimate(engine.Planned{
		Dtype:  c.Dtype,
		Length: engine.Factor{Attribute: "max_model_len", Value: c.MaxModelLen}, LengthFree: c.HFOverrides != nil,
		LengthRemedy: ", or extend the model on purpose with hf_overrides = { rope_scaling = … }",
		Sizing:       c.sizing(placement), Facts: facts,
	}, placement)
	if placement.Count() == 0 {
		problems = append(problems, spec.Idle("cpu_kvcache_space says that the server computes on a CPU, which it does "+
			"not give back.", map[string]bool{"enable_sleep_mode": c.EnableSleepMode && c.CPUKVCacheSpace > 0})...)
	}
	if c.EnableLora && placement.Count() > 0 {
		problems = append(problems, adapterProblems(c)...)
	}
	return e, problems
}

func (c Config) sizing(placement sdk.Placement) engine.Sizing {
	s := engine.Sizing{Graphs: !c.EnforceEager, GraphsOff: "enforce_eager = true"}
	if c.KVCacheDtype != "" && c.KVCacheDtype != "auto" && c.KVCacheDtype != "bfloat16" {
		s.CacheElementBytes = 1
	}
	switch {
	case placement.Count() == 0 && c.CPUKVCacheSpace > 0:
		s.Cache = &engine.Cache{Bytes: float64(c.CPUKVCacheSpace << 30),
			How: fmt.Sprintf("cpu_kvcache_space = %d GiB", c.CPUKVCacheSpace)}
	case c.KVCacheMemoryBytes > 0:
		s.Cache = &engine.Cache{Bytes: float64(c.KVCacheMemoryBytes), How: "kv_cache_memory_bytes"}
	}
	return s
}

// adapterProblems are those of serving an adapter beside its model on a GPU, where vLLM adds the one to the other in 16
// bits.
func adapterProblems(c Config) []spec.Problem {
	const merged = "serve the adapters merged: leave enable_lora out, and transport = \"auto\" in the sync block"
	switch engine.ServedDtype(c.Dtype, c.Quantization) {
	case "float32":
		return []spec.Problem{{
			Path: cty.GetAttrPath("dtype"), Summary: "vLLM serves LoRA adapters on a GPU in 16 bits only, dtype is float32",
			Detail: "Its kernels refuse float32 at the start (vLLM 0.24). Set dtype = \"half\", or " + merged + ".",
		}}
	case "", "bfloat16":
		return []spec.Problem{{
			Path: cty.GetAttrPath("dtype"), Summary: "adapters served in bfloat16 lose much of what their first steps have " +
				"learned to rounding", Warning: true,
			Detail: "What an adapter adds is smaller than bfloat16's steps at first: of the first update of SmolLM2-135M half " +
				"was lost, and the check after the sync refused it. Set dtype = \"half\", which has eight times finer steps, or " +
				merged + ".",
		}}
	}
	return nil
}
