# Qwen2.5-1.5B-Instruct learns GSM8K by GRPO with LoRA on two GPUs, one for inference and one for the trainer.
# See what it needs first: recipe plan recipes/gsm8k-2gpu.hcl

variable "model" {
  type    = string
  default = "Qwen/Qwen2.5-1.5B-Instruct"
}

variable "steps" {
  type    = number
  default = 100
}

variable "python" {
  type        = string
  default     = null
  description = "Interpreter with vllm, torch, transformers and peft; null: the one that recipe init makes"
}

variable "atropos_python" {
  type        = string
  default     = null
  description = "Interpreter with atroposlib, datasets and math-verify; null: the one that recipe init makes"
}

locals {
  max_tokens = 1024 # of one answer
  group      = 8    # answers to one question, scored against each other
}

inference "vllm" "policy" {
  model                  = var.model
  max_model_len          = 2048
  gpu_memory_utilization = 0.9
  placement { gpus = 1 }
  runtime { python = var.python }
}

environment "atropos" "gsm8k" {
  script           = "environments/gsm8k.py"
  inference        = inference.vllm.policy
  group_size       = local.group
  max_token_length = local.max_tokens
  steps_per_eval   = 25 # held-out questions
  config           = { length_penalty = true, eval_limit = 200 }
  runtime { python = var.atropos_python }
}

trainer "grpo" "policy" {
  model         = var.model
  environments  = [environment.atropos.gsm8k]
  steps         = var.steps
  batch_size    = 16 * local.group # 16 questions a step
  learning_rate = 3e-6
  max_length    = 2048

  lora {
    rank  = 64
    alpha = 32
  }
  kl {
    coefficient = 0.001
    estimator   = "k3"
  }
  compute {
    compute_dtype = "bfloat16" # arithmetic; adapters are kept in float32
    row_tokens    = 8192       # lower it when the GPU is full
  }
  checkpoints {
    every     = 20
    keep_best = 1
  }

  placement { gpus = 1 }
  runtime { python = var.python }
}

# The adapter is merged into the weights that inference loads: decoding through an adapter is several times slower than a reload costs.
sync "weights" "policy" {
  trainer       = trainer.grpo.policy
  inference     = [inference.vllm.policy]
  max_staleness = 4 # older samples are not trained on
}

output "checkpoint" { value = trainer.grpo.policy.checkpoint }
