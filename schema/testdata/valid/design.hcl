recipe {
  name             = "gsm8k"
  required_version = ">= 0.1"
  required_plugins {
    vllm = { source = "oci://registry.example.com/recipe/vllm", version = "~> 0.1" }
  }
}

variable "model" {
  type    = string
  default = "Qwen/Qwen2.5-1.5B-Instruct"
}

inference "vllm" "policy" {
  model                  = var.model
  max_model_len          = 2048
  gpu_memory_utilization = 0.45
  placement { gpus = 1 }
}

environment "atropos" "gsm8k" {
  script     = "environments/gsm8k_server.py"
  inference  = inference.vllm.policy
  group_size = 8
  config     = { max_token_length = 1024, steps_per_eval = 25 }
}

trainer "grpo" "policy" {
  model         = var.model
  environments  = [environment.atropos.gsm8k]
  steps         = 100
  batch_size    = 64
  learning_rate = 3e-6
  lora { rank = 64 }
  placement { gpus = 1 }
}

sync "weights" "policy" {
  trainer   = trainer.grpo.policy
  inference = [inference.vllm.policy]
  every     = 1
  transport = "auto"
}

output "checkpoint" { value = trainer.grpo.policy.checkpoint }
