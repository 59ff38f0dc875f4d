package sglang

import (
	"strings"

	"github.com/zclconf/go-cty/cty"

	"github.com/recipe-rl/recipe/sdk/kit/engine"
	"github.com/recipe-rl/recipe/sdk/spec"
)

// managed are arguments that the plugin sets itself, with the attribute that stands for each.
var managed = map[string]string{
	"--host": "", "--port": "", "--api-key": "", "--admin-api-key": "", "--custom-weight-loader": "",
	"--tokenizer-worker-num": "", "--config": "",
	"--model-path": "model", "--model": "model", "--served-model-name": "served_model_name", "--device": "device",
	"--tp-size": "tp_size", "--tensor-parallel-size": "tp_size", "--tp": "tp_size", "--pp-size": "pp_size",
	"--pipeline-parallel-size": "pp_size", "--dp-size": "dp_size", "--data-parallel-size": "dp_size", "--dp": "dp_size",
	"--enable-lora": "enable_lora", "--max-lora-rank": "max_lora_rank", "--quantization": "quantization",
	"--enable-memory-saver": "enable_memory_saver",
}

// Validate finds what the schema cannot express.
func (s *Server) Validate(c Config) []spec.Problem {
	problems := engine.CheckExtraArgs(c.ExtraArgs, managed,
		"SGLang listens on loopback on a free port behind a key, in one process, and the gateway is what clients reach.")
	add := func(attribute, summary, detail string) {
		problems = append(problems, spec.Problem{Path: cty.GetAttrPath(attribute), Summary: summary, Detail: detail})
	}
	if c.EnableWeightsCPUBackup != nil && *c.EnableWeightsCPUBackup && !c.EnableMemorySaver {
		add("enable_weights_cpu_backup", "enable_weights_cpu_backup needs enable_memory_saver",
			"Weights are kept in the host's memory only while the server sleeps. Set enable_memory_saver = true.")
	}
	if strings.Contains(c.ServedModelName, ":") {
		add("served_model_name", "served_model_name cannot hold a colon",
			"SGLang takes what follows it for the name of an adapter.")
	}
	if c.EnableLora && c.DpSize > 1 {
		add("dp_size", "enable_lora does not go with dp_size > 1",
			"SGLang loads adapters at run time into one copy of the model only. Use replicas instead.")
	}
	if !c.EnableLora {
		problems = append(problems, spec.Idle("enable_lora is off: adapters reach the server merged into the weights.",
			map[string]bool{"max_lora_rank": c.MaxLoraRank != 0 && c.MaxLoraRank != 16,
				"lora_target_modules": len(c.LoraTargetModules) > 0, "lora_backend": c.LoraBackend != ""})...)
	}
	problems = append(problems, spec.Idle("chat_template is the template.",
		map[string]bool{"hf_chat_template_name": c.ChatTemplate != "" && c.HFChatTemplateName != ""})...)
	problems = append(problems, spec.Idle(`device = "cpu": there is no GPU memory to give back.`,
		map[string]bool{"enable_memory_saver": c.Device == "cpu" && c.EnableMemorySaver})...)
	plain := c
	plain.ExtraArgs = nil
	if own, err := (&program{config: plain}).arguments(engine.Launch{Model: c.Model}); err != nil {
		add("json_model_override_args", "json_model_override_args cannot be given to SGLang", err.Error())
	} else {
		problems = append(problems, engine.Repeated(c.ExtraArgs, own)...)
	}
	return problems
}
