# Several datasets of reasoning-gym, mixed by weight, one of which becomes harder as the answers become better. `recipe init` makes the
# environment's Python environment. recipes/reasoning-gym.hcl trains on one dataset, as an environment of Atropos.

variable "model" {
  type    = string
  default = "Qwen/Qwen2.5-0.5B-Instruct"
}

inference "vllm" "policy" {
  model                  = var.model
  max_model_len          = 2048
  gpu_memory_utilization = 0.3
  placement { devices = ["0"] }
}

environment "reasoning_gym" "mix" {
  inference     = inference.vllm.policy
  group_size    = 8
  max_tokens    = 512
  system_prompt = "default"

  datasets {
    name       = "chain_sum"
    weight     = 2
    curriculum = true
  }
  datasets {
    name   = "letter_counting"
    config = { max_words = 10 }
  }
  datasets {
    name  = "leg_counting"
    level = 0
  }
}

trainer "grpo" "policy" {
  model         = var.model
  environments  = [environment.reasoning_gym.mix]
  steps         = 100
  batch_size    = 64
  learning_rate = 1e-6
  max_length    = 2048

  placement { devices = ["0"] }
}

sync "weights" "policy" {
  trainer       = trainer.grpo.policy
  inference     = [inference.vllm.policy]
  max_staleness = 4
}

output "checkpoint" { value = trainer.grpo.policy.checkpoint }
