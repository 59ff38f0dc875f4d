package trl

import (
	"github.com/recipe-rl/recipe/sdk/kit/worker"
)

// Config is the body of `trainer "trl" "name"`. What all trainers have is in Common; everything else is TRL's, in its
// own names.
type Config struct {
	worker.Common

	Config      map[string]any      `recipe:"config" change:"resume" doc:"TRL's own settings, those of GRPOConfig and ModelConfig as 'trl grpo --config' reads them: { learning_rate = 1e-6, loss_type = \"dapo\" }, or yamldecode(file(\"grpo.yaml\")); and peft_config, an object in peft's names. A setting of what recipe does itself (vllm_*, rewards, datasets, generation, saving) is refused with what to write instead"`
	OldPolicy   string              `recipe:"old_policy" worker:"old_policy" default:"trainer" enum:"trainer,rollout" change:"resume" doc:"Ratios against the trainer's log-probabilities before the step, corrected for the sampler's as TRL does with vLLM (vllm_importance_sampling_*), or against the sampler's"`
	Checkpoints *worker.Checkpoints `recipe:"checkpoints,block" doc:"When checkpoints are written and which are kept"`
}

// CheckpointStore implements trainer.Stored.
func (c Config) CheckpointStore() string { return c.Checkpoints.StoreAddress() }

// trl is what the program reads as TRL's settings.
func (c Config) trl() map[string]any {
	if c.Config == nil {
		return map[string]any{}
	}
	return c.Config
}

// text is a setting of TRL's, or the other value where the recipe does not say it.
func (c Config) text(name, other string) string {
	if v, ok := c.Config[name].(string); ok {
		return v
	}
	return other
}

// adapted reports whether adapters are trained instead of the weights.
func (c Config) adapted() bool {
	on, _ := c.Config["use_peft"].(bool)
	return on || c.Config["peft_config"] != nil
}

// rank is that of the adapters; 0: all weights are trained, or peft decides.
func (c Config) rank() int64 {
	if !c.adapted() {
		return 0
	}
	if options, given := c.Config["peft_config"].(map[string]any); given {
		r, _ := worker.Number(options["r"])
		return int64(r)
	}
	if r, set := worker.Number(c.Config["lora_r"]); set {
		return int64(r)
	}
	return 16 // the default of TRL's ModelConfig
}

// dtype is the precision of the weights, TRL's default of which is float32.
func (c Config) dtype() string {
	options, _ := c.Config["model_init_kwargs"].(map[string]any)
	if d, ok := options["dtype"].(string); ok {
		return d
	}
	return c.text("dtype", "float32")
}

// sharded reports whether each GPU holds a part of the model. transformers reads fsdp_config only beside fsdp.
func (c Config) sharded() bool {
	switch c.Config["fsdp"] {
	case nil, false, "":
		return c.Config["deepspeed"] != nil
	}
	return true
}

// corrects says what makes up for tokens that an older policy version sampled; empty: nothing does, or no such token is
// trained on.
func (c Config) corrects() string {
	if c.MaxStaleness != nil && *c.MaxStaleness < 1 {
		return ""
	}
	if c.OldPolicy == "rollout" {
		return "the ratio of TRL's " + c.text("loss_type", "dapo") + " is against the sampler's log-probabilities"
	}
	if on, ok := c.Config["vllm_importance_sampling_correction"].(bool); ok && !on {
		return ""
	}
	return "TRL's vllm_importance_sampling_mode = " + c.text("vllm_importance_sampling_mode", "sequence_mask")
}
