# FrozenLake of Gymnasium, played in text: four actions, a picture of the lake in each turn, a reward at the goal. `recipe init` makes the
# environment's Python environment.

variable "model" {
  type    = string
  default = "HuggingFaceTB/SmolLM2-135M-Instruct"
}

inference "vllm" "policy" {
  model                  = var.model
  dtype                  = "float32"
  max_model_len          = 2048
  gpu_memory_utilization = 0.3
  placement { devices = ["0"] }
}

environment "gymnasium" "lake" {
  inference             = inference.vllm.policy
  id                    = "FrozenLake-v1"
  config                = { is_slippery = false }
  group_size            = 8
  max_tokens            = 16 # of each answer
  max_turns             = 12
  invalid_action_reward = -0.1
}

trainer "grpo" "policy" {
  model         = var.model
  environments  = [environment.gymnasium.lake]
  steps         = 100
  batch_size    = 64
  learning_rate = 1e-5
  max_length    = 2048
  kl { coefficient = 0 }

  placement { devices = ["0"] }
}

sync "weights" "policy" {
  trainer       = trainer.grpo.policy
  inference     = [inference.vllm.policy]
  max_staleness = 4
}

output "checkpoint" { value = trainer.grpo.policy.checkpoint }
