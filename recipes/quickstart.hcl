# A whole RL run on a laptop: a tiny language model learns to add. Try: recipe plan recipes/quickstart.hcl

variable "steps" { # set it with --var steps=600, a --var-file, or RECIPE_VAR_steps
  type        = number
  default     = 300
  description = "optimizer steps"
}

locals {
  group = 16 # completions of one problem, scored against each other: the G in GRPO
}

# KIND "PLUGIN" "NAME": the kind fixes what a block takes and gives, the plugin does the work.
inference "tiny" "policy" {} # for a real model: inference "vllm" "policy" { model = "Qwen/Qwen2.5-1.5B-Instruct" }

environment "arithmetic" "sums" {
  inference  = inference.tiny.policy # a reference: address and key are injected, and it starts once that is ready
  group_size = local.group
}

trainer "tiny" "policy" {
  environments  = [environment.arithmetic.sums]
  steps         = var.steps
  batch_size    = 16 * local.group
  learning_rate = 3e-4
}

# After each optimizer step the new weights go to inference, and are proved to have arrived.
sync "weights" "policy" {
  trainer       = trainer.tiny.policy
  inference     = [inference.tiny.policy]
  max_staleness = 4 # older samples are not trained on
}

output "checkpoint" { value = trainer.tiny.policy.checkpoint }
