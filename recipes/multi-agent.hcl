# Two agents, one policy: a solver answers, a checker judges the answer. Each role posts its own groups, and both train one model.

variable "model" {
  type    = string
  default = "HuggingFaceTB/SmolLM2-135M-Instruct"
}

inference "vllm" "policy" {
  model                  = var.model
  dtype                  = "float32"
  max_model_len          = 128
  gpu_memory_utilization = 0.3
  placement { devices = ["0"] }
}

environment "atropos" "debate" {
  script           = "environments/two_agents.py"
  inference        = inference.vllm.policy
  group_size       = 8
  max_token_length = 64
}

trainer "grpo" "policy" {
  model         = var.model
  environments  = [environment.atropos.debate]
  steps         = 50
  batch_size    = 64 # groups of both roles, as they come
  learning_rate = 1e-5
  max_length    = 128
  kl { coefficient = 0 }

  placement { devices = ["0"] }
}

sync "weights" "policy" {
  trainer       = trainer.grpo.policy
  inference     = [inference.vllm.policy]
  max_staleness = 4
}

output "checkpoint" { value = trainer.grpo.policy.checkpoint }
