# R1-zero style: a base model, no chat template, no examples. It learns to think before it answers from two rewards: a small one for
# the form, a larger one for the right number.

variable "model" {
  type    = string
  default = "Qwen/Qwen2.5-1.5B"
}

variable "python" {
  type        = string
  default     = null
  description = "Interpreter with vllm, torch and transformers; null: the one that recipe init makes"
}

variable "atropos_python" {
  type        = string
  default     = null
  description = "Interpreter with atroposlib; null: the one that recipe init makes"
}

inference "vllm" "policy" {
  model                  = var.model
  max_model_len          = 512
  gpu_memory_utilization = 0.45
  placement { devices = ["0"] }
  runtime { python = var.python }
}

environment "atropos" "think" {
  script           = "environments/r1_zero.py"
  inference        = inference.vllm.policy
  group_size       = 16 # large groups: right answers are rare at first
  max_token_length = 256
  config = {
    max_new_tokens = 96
    form_reward    = 0.2 # for <think>…</think> <answer>…</answer>, right or wrong
  }
  runtime { python = var.atropos_python }
}

trainer "grpo" "policy" {
  model         = var.model
  environments  = [environment.atropos.think]
  steps         = 100
  batch_size    = 256
  learning_rate = 3e-6
  max_length    = 512

  advantages { std = "none" }      # no division by the spread: it would favour questions of which nearly all are right
  loss { aggregation = "dr_grpo" } # and no division by the length, which would favour long wrong answers
  kl { coefficient = 0 }
  lora {
    rank  = 64
    alpha = 64
  }
  compute { compute_dtype = "bfloat16" }

  placement { devices = ["0"] }
  runtime { python = var.python }
}

sync "weights" "policy" {
  trainer       = trainer.grpo.policy
  inference     = [inference.vllm.policy]
  max_staleness = 4
}

output "checkpoint" { value = trainer.grpo.policy.checkpoint }
