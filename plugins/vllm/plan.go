package vllm

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/zclconf/go-cty/cty"

	"github.com/recipe-rl/recipe/sdk"
	"github.com/recipe-rl/recipe/sdk/engine"
	"github.com/recipe-rl/recipe/sdk/modelinfo"
	"github.com/recipe-rl/recipe/sdk/spec"
)

// Plan says what the block will need of each GPU, or of the machine when it has none. It reads config.json of a local
// model; a model that is neither local nor known gives a note instead of an amount.
func (s *Server) Plan(c Config, placement sdk.Placement) (sdk.Estimate, []spec.Problem) {
	e := sdk.Estimate{Facts: map[string]string{"model": c.Model, "tokenizer": c.tokenizer()}}
	transportFacts(c, placement, e.Facts)
	e.Facts["sleeps"] = strconv.FormatBool(c.EnableSleepMode && c.CPUKVCacheSpace == 0)
	if c.GPUMemoryUtilization > 0 {
		e.Facts["gpu_memory_utilization"] = strconv.FormatFloat(c.GPUMemoryUtilization, 'g', -1, 64)
	}
	if c.LogprobsMode != "" {
		e.Facts["logprobs_mode"] = strings.TrimSuffix(c.LogprobsMode, "_logprobs")
	}
	if d := engine.ServedDtype(c.Dtype, c.Quantization); d != "" {
		e.Facts["dtype"] = d
	}
	problems := engine.CheckGPUs(placement, engine.Factor{Attribute: "replicas", Value: c.Replicas},
		engine.Factor{Attribute: "tensor_parallel_size", Value: c.TensorParallelSize},
		engine.Factor{Attribute: "pipeline_parallel_size", Value: c.PipelineParallelSize},
		engine.Factor{Attribute: "data_parallel_size", Value: c.DataParallelSize})
	if c.EnableLora && placement.Count() > 0 {
		problems = append(problems, adapterProblems(c)...)
	}
	templates, err := c.chatTemplate().Facts(c.tokenizer())
	maps.Copy(e.Facts, templates)
	if err != nil {
		problems = append(problems, engine.TemplateProblem(err))
	}
	m, known, note, more := engine.ReadModel(c.Model)
	if problems = append(problems, more...); len(more) > 0 {
		return e, problems
	}
	length := c.MaxModelLen
	if known && length == 0 {
		length = m.MaxLen
	}
	if length > 0 {
		e.Facts["max_model_len"] = strconv.FormatInt(length, 10)
	}
	if !known {
		e.Notes = append(e.Notes, note)
		return e, problems
	}
	if c.HFOverrides == nil {
		problems = append(problems, engine.CheckLength("vLLM", m, "max_model_len", c.MaxModelLen,
			", or extend the model on purpose with hf_overrides = { rope_scaling = … }")...)
	}
	problems = append(problems, engine.CheckHeads("vLLM", m, "tensor_parallel_size", c.TensorParallelSize)...)
	e.Amounts = sizing(c, m, placement, length).Amounts()
	return e, problems
}

func sizing(c Config, m modelinfo.Model, placement sdk.Placement, length int64) engine.Sizing {
	s := engine.Sizing{
		Model: m, Placement: placement, Replicas: c.Replicas, MaxLen: length, Graphs: !c.EnforceEager,
		GraphsOff:      "enforce_eager = true",
		Shards:         max(1, c.TensorParallelSize) * max(1, c.PipelineParallelSize),
		ParameterBytes: engine.ParameterBytes(c.Dtype, c.Quantization),
	}
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

// transportFacts says how weights can arrive, for the comparison with what trainer and sync say.
func transportFacts(c Config, placement sdk.Placement, facts map[string]string) {
	facts["transports"] = strings.Join(c.transports(), ",")
	facts["devices"] = strings.Join(append(slices.Clone(placement.Devices), c.PeerDevices...), ",")
	if why := c.withheld(); why != "" {
		facts["no_memory"] = why
	}
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
				"was lost, and the proof after the sync refused it. Set dtype = \"half\", which has eight times finer steps, or " +
				merged + ".",
		}}
	}
	return nil
}
