# R1-zero style: a base model, no chat template, no examples. It learns to think before it answers from two rewards: a small one for
# the form, a larger one for the right answer. The task is countdown of reasoning-gym: reach a number with three or four given ones.

variable "model" {
  type    = string
  default = "Qwen/Qwen2.5-1.5B"
}

inference "vllm" "policy" {
  model                  = var.model
  max_model_len          = 1024
  gpu_memory_utilization = 0.45
  placement { devices = ["0"] }
}

environment "atropos" "think" {
  script           = "environments/r1_zero.py"
  inference        = inference.vllm.policy
  group_size       = 16 # large groups: right answers are rare at first
  max_token_length = 1024
  steps_per_eval   = 25 # held-out problems
  config = {
    dataset        = "countdown"
    dataset_config = { min_numbers = 3, max_numbers = 4, min_target = 10, max_target = 100 }
    max_new_tokens = 512 # of thinking and answer together
    form_reward    = 0.2 # for <think>…</think> <answer>…</answer>, right or wrong
  }
}

trainer "grpo" "policy" {
  model         = var.model
  environments  = [environment.atropos.think]
  steps         = 100
  batch_size    = 256
  learning_rate = 3e-6
  max_length    = 1024

  advantages { std = "none" }      # no division by the spread: it would favor questions of which nearly all are right
  loss { aggregation = "dr_grpo" } # and no division by the length, which would favor long wrong answers
  kl { coefficient = 0 }
  lora {
    rank  = 64
    alpha = 64
  }

  placement { devices = ["0"] }
}

sync "weights" "policy" {
  trainer       = trainer.grpo.policy
  inference     = [inference.vllm.policy]
  max_staleness = 4
}

output "checkpoint" { value = trainer.grpo.policy.checkpoint }
