# What verl-recipe's atropos/run_atropos.sh runs, as a recipe: Qwen3-1.7B learns GSM8K on one GPU with verl's engine, vLLM and an
# environment of Atropos. docs/verl-atropos.md goes through the script line by line; the variables here are its environment variables.
# recipe init recipes/verl-atropos.hcl makes the Python environments; recipe plan recipes/verl-atropos.hcl says what it needs.

variable "model" {
  type    = string
  default = "Qwen/Qwen3-1.7B"
}

variable "atropos_path" {
  type        = string
  default     = ""
  description = "A checkout of Atropos whose environments/ has the script; empty: the copy of gsm8k beside this recipe"
}

variable "atropos_env" {
  type    = string
  default = "gsm8k_server"
}

variable "lr" {
  type    = number
  default = 5e-6
}

variable "batch_size" {
  type        = number
  default     = 2
  description = "Prompts of a step"
}

variable "group_size" {
  type    = number
  default = 4
}

variable "total_steps" {
  type    = number
  default = 50
}

variable "max_prompt_length" {
  type    = number
  default = 512
}

variable "max_response_length" {
  type    = number
  default = 1536
}

variable "gpu_mem_util" {
  type    = number
  default = 0.45
}

variable "n_gpus" {
  type    = number
  default = 1
}

locals {
  length  = var.max_prompt_length + var.max_response_length
  devices = [for i in range(var.n_gpus) : tostring(i)]
}

inference "vllm" "policy" {
  model                  = var.model
  max_model_len          = local.length
  gpu_memory_utilization = var.gpu_mem_util
  enforce_eager          = true
  enable_sleep_mode      = true       # it sleeps while the trainer works, as in verl's HYBRID mode
  replicas               = var.n_gpus # tensor_model_parallel_size = 1 there: a server on each GPU
  placement {
    gpus    = var.n_gpus
    devices = local.devices
  }
}

environment "atropos" "policy" {
  path             = var.atropos_path != "" ? var.atropos_path : null
  script           = var.atropos_path != "" ? "environments/${var.atropos_env}.py" : "environments/gsm8k.py"
  inference        = inference.vllm.policy
  group_size       = var.group_size
  max_token_length = var.max_response_length
}

trainer "verl" "policy" {
  model               = var.model
  environments        = [environment.atropos.policy]
  steps               = var.total_steps
  batch_size          = var.batch_size * var.group_size
  max_length          = local.length
  max_prompt_length   = var.max_prompt_length
  max_response_length = var.max_response_length
  wandb_project       = "verl-atropos"

  config = {
    actor = {
      optim         = { lr = var.lr, clip_grad = 1.0 }
      fsdp_config   = { param_offload = true, optimizer_offload = true }
      entropy_coeff = 0
    }
    model = {
      use_remove_padding = false
      override_config    = { attn_implementation = "sdpa" }
    }
    algorithm = { adv_estimator = "grpo" }
  }
  checkpoints {
    every     = 10
    keep_last = 2
  }
  placement {
    gpus    = var.n_gpus
    devices = local.devices
  }
}

sync "weights" "policy" {
  trainer   = trainer.verl.policy
  inference = [inference.vllm.policy]
}

output "checkpoint" { value = trainer.verl.policy.checkpoint }
