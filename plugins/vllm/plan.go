package vllm

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/zclconf/go-cty/cty"

	"github.com/recipe-rl/recipe/sdk"
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
	if d := servedDtype(c); d != "" {
		e.Facts["dtype"] = d
	}
	problems := placementProblems(c, placement)
	templates, err := c.chatTemplate().Facts(c.tokenizer())
	maps.Copy(e.Facts, templates)
	if err != nil {
		problems = append(problems, templateProblem(err))
	}
	m, known, err := modelinfo.Of(c.Model)
	if err != nil {
		return e, append(problems, spec.Problem{Path: cty.GetAttrPath("model"),
			Summary: "the model's config.json cannot be read", Detail: err.Error()})
	}
	length := c.MaxModelLen
	if known && length == 0 {
		length = m.MaxLen
	}
	if length > 0 {
		e.Facts["max_model_len"] = strconv.FormatInt(length, 10)
	}
	if !known {
		e.Notes = append(e.Notes, fmt.Sprintf("%s is not on this machine and not in the table of usual models, so its "+
			"memory is not known before it is downloaded", c.Model))
		return e, problems
	}
	problems = append(problems, shapeProblems(c, m)...)
	resource, share := "gpu_memory", float64(max(1, c.TensorParallelSize)*max(1, c.PipelineParallelSize))
	if placement.GPUs == 0 && len(placement.Devices) == 0 {
		resource, share = "host_memory", 1/float64(max(1, c.Replicas))
	}
	e.Amounts = append(e.Amounts, weightsAmount(c, m, resource, share), cacheAmount(c, m, resource, share, length))
	if c.EnforceEager {
		return e, problems
	}
	if resource == "gpu_memory" {
		e.Amounts = append(e.Amounts, sdk.Amount{Resource: resource, Part: "cuda_graphs", Value: 1 << 30,
			How: "about 1 GiB for CUDA graphs and activations; enforce_eager = true saves most of it"})
	}
	return e, problems
}

// transportFacts says how weights can arrive, for the comparison with what trainer and sync say.
func transportFacts(c Config, placement sdk.Placement, facts map[string]string) {
	facts["transports"] = strings.Join(c.transports(), ",")
	facts["devices"] = strings.Join(append(slices.Clone(placement.Devices), c.PeerDevices...), ",")
	if why := c.withheld(); why != "" {
		facts["no_memory"] = why
	}
	if c.Dtype != "" && c.Dtype != "auto" {
		facts["dtype"] = c.Dtype
	}
}

func weightsAmount(c Config, m modelinfo.Model, resource string, share float64) sdk.Amount {
	bytes := elementBytes(c, m)
	value := float64(m.Parameters()) * bytes / share
	return sdk.Amount{
		Resource: resource, Part: "weights", Value: value,
		How: fmt.Sprintf("%s parameters × %g bytes%s", count(m.Parameters()), bytes, dividedBy(share)),
	}
}

// cacheAmount is the least that the KV cache must hold. What gpu_memory_utilization leaves beyond it lets more
// sequences run at once.
func cacheAmount(c Config, m modelinfo.Model, resource string, share float64, length int64) sdk.Amount {
	if c.CPUKVCacheSpace > 0 && resource == "host_memory" {
		return sdk.Amount{Resource: resource, Part: "kv_cache", Value: float64(c.CPUKVCacheSpace<<30) / share,
			How: fmt.Sprintf("cpu_kvcache_space = %d GiB", c.CPUKVCacheSpace)}
	}
	if c.KVCacheMemoryBytes > 0 {
		return sdk.Amount{Resource: resource, Part: "kv_cache", Value: float64(c.KVCacheMemoryBytes),
			How: "kv_cache_memory_bytes"}
	}
	element := int64(2)
	switch {
	case c.KVCacheDtype != "" && c.KVCacheDtype != "auto" && c.KVCacheDtype != "bfloat16":
		element = 1
	case elementBytes(c, m) == 4:
		element = 4
	}
	per := m.KVBytes(element)
	return sdk.Amount{
		Resource: resource, Part: "kv_cache", Value: float64(per*length) / share,
		How: fmt.Sprintf("one sequence of %d tokens × %d bytes (2 × %d layers × %d KV heads × %d × %d bytes)%s; more "+
			"sequences at once need as much again each",
			length, per, m.Layers, m.KVHeads, m.HeadDim, element, dividedBy(share)),
	}
}

// servedDtype is the precision in which the server holds the weights; empty when only the server knows.
func servedDtype(c Config) string {
	if c.Quantization != "" {
		return c.Quantization
	}
	switch c.Dtype {
	case "half", "float16":
		return "float16"
	case "float", "float32":
		return "float32"
	case "bfloat16":
		return c.Dtype
	}
	return "" // auto follows the model's config.json
}

// elementBytes is how much one parameter takes.
func elementBytes(c Config, m modelinfo.Model) float64 {
	switch c.Quantization {
	case "":
	case "fp8":
		return 1
	case "awq", "gptq", "bitsandbytes", "awq_marlin", "gptq_marlin":
		return 0.55 // 4 bits, and scales
	}
	switch c.Dtype {
	case "float", "float32":
		return 4
	}
	return 2 // auto serves float32 checkpoints in half precision
}

func placementProblems(c Config, placement sdk.Placement) (problems []spec.Problem) {
	want := int64(c.gpusPerReplica()) * max(1, c.Replicas)
	have := int64(max(placement.GPUs, len(placement.Devices)))
	if have > 0 && c.EnableLora {
		problems = append(problems, adapterProblems(c)...)
	}
	if have == 0 || have >= want {
		return problems
	}
	return append(problems, spec.Problem{
		Path:    cty.GetAttrPath("replicas"),
		Summary: fmt.Sprintf("%d GPUs are needed, placement gives %d", want, have),
		Detail: fmt.Sprintf("replicas = %d × tensor_parallel_size = %d × pipeline_parallel_size = %d × data_parallel_size "+
			"= %d. Lower one of them, or set placement { gpus = %d }.",
			max(1, c.Replicas), max(1, c.TensorParallelSize), max(1, c.PipelineParallelSize), max(1, c.DataParallelSize), want),
	})
}

// adapterProblems are those of serving an adapter beside its model on a GPU, where vLLM adds the one to the other in 16
// bits.
func adapterProblems(c Config) []spec.Problem {
	const merged = "serve the adapters merged: leave enable_lora out, and transport = \"auto\" in the sync block"
	switch servedDtype(c) {
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

func shapeProblems(c Config, m modelinfo.Model) []spec.Problem {
	var problems []spec.Problem
	if m.MaxLen > 0 && c.MaxModelLen > m.MaxLen && c.HFOverrides == nil {
		problems = append(problems, spec.Problem{
			Path: cty.GetAttrPath("max_model_len"), Summary: fmt.Sprintf("the model was made for %d tokens, max_model_len "+
				"asks for %d", m.MaxLen, c.MaxModelLen),
			Detail: "vLLM refuses to start. Lower max_model_len, or extend the model on purpose with hf_overrides " +
				"= { rope_scaling = … }.",
		})
	}
	if tp := max(1, c.TensorParallelSize); m.Heads%tp != 0 {
		problems = append(problems, spec.Problem{
			Path: cty.GetAttrPath("tensor_parallel_size"), Summary: fmt.Sprintf("%d attention heads cannot be spread over %d "+
				"GPUs evenly", m.Heads, tp),
			Detail: fmt.Sprintf("vLLM refuses to start. Choose a tensor_parallel_size that divides %d.", m.Heads),
		})
	}
	return problems
}

func templateProblem(err error) spec.Problem {
	p := spec.Problem{Path: cty.GetAttrPath("chat_template_name"), Summary: "the tokenizer's chat templates " +
		"cannot be used", Detail: err.Error()}
	var e *sdk.Error
	if errors.As(err, &e) {
		p.Summary, p.Detail = e.Summary, fmt.Sprintf("%s: %s.", e.Detail, e.Remedy)
	}
	return p
}

func dividedBy(share float64) string {
	switch {
	case share > 1:
		return fmt.Sprintf(" ÷ %g GPUs", share)
	case share < 1:
		return fmt.Sprintf(" × %g replicas", 1/share)
	default:
		return ""
	}
}

// count writes a number of parameters the way people say it.
func count(n int64) string {
	if n >= 1e9 {
		return fmt.Sprintf("%.2f billion", float64(n)/1e9)
	}
	return fmt.Sprintf("%.0f million", float64(n)/1e6)
}
