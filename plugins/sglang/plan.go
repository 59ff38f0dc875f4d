package sglang

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/recipe-rl/recipe/sdk"
	"github.com/recipe-rl/recipe/sdk/engine"
	"github.com/recipe-rl/recipe/sdk/spec"
)

// Plan says what the block will need of each GPU, or of the machine when it has none. It reads config.json of a local
// model; a model that is neither local nor known gives a note instead of an amount.
func (s *Server) Plan(c Config, placement sdk.Placement) (sdk.Estimate, []spec.Problem) {
	e := sdk.Estimate{Facts: map[string]string{
		"model": c.Model, "tokenizer": c.tokenizer(), "logprobs_mode": "processed",
		"transports": strings.Join(c.transports(), ","),
		"devices":    strings.Join(append(slices.Clone(placement.Devices), c.PeerDevices...), ","),
		// what plan calls these settings when it speaks of this block
		"name_of_max_model_len": "context_length", "name_of_gpu_memory_utilization": "mem_fraction_static",
		"name_of_enable_sleep_mode": "enable_memory_saver",

		"sleeps": strconv.FormatBool(c.EnableMemorySaver && c.Device != "cpu"),
	}}
	if why := c.withheld(); why != "" {
		e.Facts["no_memory"] = why
	}
	if c.MemFractionStatic > 0 { // of the whole GPU, as vLLM's gpu_memory_utilization
		e.Facts["gpu_memory_utilization"] = strconv.FormatFloat(c.MemFractionStatic, 'g', -1, 64)
	}
	if d := engine.ServedDtype(c.Dtype, c.Quantization); d != "" {
		e.Facts["dtype"] = d
	}
	problems := engine.CheckGPUs(placement, engine.Factor{Attribute: "replicas", Value: c.Replicas},
		engine.Factor{Attribute: "tp_size", Value: c.TpSize}, engine.Factor{Attribute: "pp_size", Value: c.PpSize},
		engine.Factor{Attribute: "dp_size", Value: c.DpSize})
	templates, err := c.template().Facts(c.tokenizer())
	maps.Copy(e.Facts, templates)
	if err != nil {
		problems = append(problems, engine.TemplateProblem(err))
	}
	m, known, note, more := engine.ReadModel(c.Model)
	if problems = append(problems, more...); len(more) > 0 {
		return e, problems
	}
	length := c.ContextLength
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
	if c.JSONModelOverrideArgs == nil {
		problems = append(problems, engine.CheckLength(title, m, "context_length", c.ContextLength,
			", or extend the model on purpose with json_model_override_args")...)
	}
	problems = append(problems, engine.CheckHeads(title, m, "tp_size", c.TpSize)...)
	sizing := engine.Sizing{
		Model: m, Placement: placement, Replicas: c.Replicas, MaxLen: length, Graphs: !c.DisableCudaGraph,
		GraphsOff:      "disable_cuda_graph = true",
		Shards:         max(1, c.TpSize) * max(1, c.PpSize),
		ParameterBytes: engine.ParameterBytes(c.Dtype, c.Quantization),
	}
	if strings.HasPrefix(c.KVCacheDtype, "fp8") {
		sizing.CacheElementBytes = 1
	}
	if c.MaxTotalTokens > 0 {
		element := sizing.CacheElementBytes
		if element == 0 {
			element = max(2, int64(sizing.ParameterBytes))
		}
		sizing.Cache = &engine.Cache{Bytes: float64(m.KVBytes(element)*c.MaxTotalTokens) / float64(sizing.Shards),
			How: "max_total_tokens = " + strconv.FormatInt(c.MaxTotalTokens, 10)}
	}
	e.Amounts = sizing.Amounts()
	return e, problems
}
