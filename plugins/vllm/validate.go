package vllm

import (
	"fmt"
	"slices"

	"github.com/zclconf/go-cty/cty"

	"github.com/recipe-rl/recipe/sdk/kit/engine"
	"github.com/recipe-rl/recipe/sdk/spec"
)

// managed are arguments that the plugin sets itself, with the attribute for each.
var managed = map[string]string{
	"--host": "", "--port": "", "--api-key": "", "--worker-extension-cls": "", "--uds": "",
	"--served-model-name": "served_model_name", "--model": "model", "--tensor-parallel-size": "tensor_parallel_size",
	"-tp":                  "tensor_parallel_size",
	"--data-parallel-size": "data_parallel_size", "-dp": "data_parallel_size",
	"--pipeline-parallel-size": "pipeline_parallel_size", "-pp": "pipeline_parallel_size",
	"--enable-lora": "enable_lora", "--max-lora-rank": "max_lora_rank",
	"--quantization": "quantization", "-q": "quantization",
	"--logprobs-mode": "logprobs_mode", "--stream-interval": "stream_interval",
}

// loraRanks are the ranks that vLLM has kernels for.
var loraRanks = []int64{1, 8, 16, 32, 64, 128, 256, 320, 512}

// Validate finds what the schema cannot express.
func (s *Server) Validate(c Config) []spec.Problem {
	problems := engine.CheckExtraArgs(c.ExtraArgs, managed,
		"vLLM listens on loopback on a free port, and the gateway is what clients reach.")
	add := func(attribute, summary, detail string) {
		problems = append(problems, spec.Problem{Path: cty.GetAttrPath(attribute), Summary: summary, Detail: detail})
	}
	if c.EnableLora && c.APIServerCount > 1 {
		add("api_server_count", "api_server_count does not go with enable_lora",
			"vLLM refuses adapters that change at run time when it has several front-end processes. Leave one of them out; "+
				"replicas work with both.")
	}
	if c.EnforceEager && c.Compile != nil && *c.Compile {
		add("compile", "compile does not go with enforce_eager",
			"enforce_eager = true means that nothing is compiled and no CUDA graphs are recorded. Leave one of them out.")
	}
	if c.EnableLora && c.MaxLoraRank > 0 && !slices.Contains(loraRanks, c.MaxLoraRank) {
		add("max_lora_rank", fmt.Sprintf("vLLM has no kernels for LoRA rank %d", c.MaxLoraRank),
			fmt.Sprintf("Set max_lora_rank to the next larger of %v; smaller adapters fit into it.", loraRanks))
	}
	if c.EnableAutoToolChoice != nil && *c.EnableAutoToolChoice && (c.ToolCallParser == "" ||
		c.ToolCallParser == engine.None) {
		add("tool_call_parser", "enable_auto_tool_choice needs tool_call_parser",
			"Name how tool calls are read out of the text, for example tool_call_parser = \"hermes\".")
	}
	problems = append(problems, c.quantizationProblems()...)
	if !c.EnableLora {
		problems = append(problems, spec.Idle("enable_lora is off: adapters reach the server merged into the weights.",
			map[string]bool{"max_lora_rank": c.MaxLoraRank != 0 && c.MaxLoraRank != 16, "max_loras": c.MaxLoras > 0})...)
	}
	problems = append(problems, spec.Idle("chat_template is the template.",
		map[string]bool{"chat_template_name": c.ChatTemplate != "" && c.ChatTemplateName != ""})...)
	plain := c
	plain.ExtraArgs = nil
	if own, err := (&program{config: plain}).arguments(engine.Launch{Model: c.Model}); err != nil {
		add("hf_overrides", "hf_overrides cannot be given to vLLM", err.Error())
	} else {
		problems = append(problems, engine.Repeated(c.ExtraArgs, own)...)
	}
	if c.MaxNumBatchedTokens > 0 && c.MaxNumSeqs > c.MaxNumBatchedTokens {
		add("max_num_batched_tokens", "max_num_batched_tokens is below max_num_seqs",
			fmt.Sprintf("Each of %d sequences decodes one token a step; set max_num_batched_tokens to at least that.",
				c.MaxNumSeqs))
	}
	return problems
}
