# Qwen2.5-1.5B-Instruct learns GSM8K by GRPO with LoRA on one GPU, which trainer and inference share, or on two (--var gpus=2).
# vLLM serves it, or SGLang (--var engine=sglang). recipe's own worker trains it, or TRL, verl or Axolotl (--var trainer=trl).
# recipe init recipes/gsm8k.hcl makes the Python environments; recipe plan recipes/gsm8k.hcl says what it needs.

variable "model" {
  type    = string
  default = "Qwen/Qwen2.5-1.5B-Instruct"
}

variable "engine" {
  type        = string
  default     = "vllm"
  description = "What serves the model: vllm or sglang"
  validation {
    condition     = contains(["vllm", "sglang"], var.engine)
    error_message = "engine is vllm or sglang."
  }
}

variable "trainer" {
  type        = string
  default     = "grpo"
  description = "What trains the model: grpo, trl, verl or axolotl"
  validation {
    condition     = contains(["grpo", "trl", "verl", "axolotl"], var.trainer)
    error_message = "trainer is grpo, trl, verl or axolotl."
  }
}

variable "steps" {
  type    = number
  default = 100
}

variable "gpus" {
  type        = number
  default     = 1
  description = "1: inference and trainer share a GPU; 2: each has its own"
  validation {
    condition     = var.gpus == 1 || var.gpus == 2
    error_message = "gpus is 1 or 2."
  }
}

locals {
  shared     = var.gpus == 1 ? ["0"] : null                              # null: each gets one of its own
  max_tokens = 1024                                                      # of one answer
  group      = 8                                                         # answers to one question, scored against each other
  batch      = 16 * local.group                                          # 16 questions a step
  policy     = concat(inference.vllm.policy, inference.sglang.policy)[0] # the one that there is
  trainer    = concat(trainer.grpo.policy, trainer.trl.policy, trainer.verl.policy, trainer.axolotl.policy)[0]
}

inference "vllm" "policy" {
  count                  = var.engine == "vllm" ? 1 : 0
  model                  = var.model
  max_model_len          = 2048
  gpu_memory_utilization = var.gpus == 1 ? 0.45 : 0.9 # on one GPU the trainer needs the rest
  placement {
    gpus    = 1
    devices = local.shared
  }
}

inference "sglang" "policy" {
  count               = var.engine == "sglang" ? 1 : 0
  model               = var.model
  context_length      = 2048
  mem_fraction_static = var.gpus == 1 ? 0.4 : 0.85 # without what a step needs besides
  placement {
    gpus    = 1
    devices = local.shared
  }
}

environment "atropos" "gsm8k" {
  script           = "environments/gsm8k.py"
  inference        = local.policy
  group_size       = local.group
  max_token_length = local.max_tokens
  steps_per_eval   = 25 # held-out questions
  config           = { length_penalty = true, eval_limit = 200 }
}

trainer "grpo" "policy" {
  count         = var.trainer == "grpo" ? 1 : 0
  model         = var.model
  environments  = [environment.atropos.gsm8k]
  steps         = var.steps
  batch_size    = local.batch
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
  checkpoints {
    every     = 20
    keep_best = 1
  }

  placement {
    gpus    = 1
    devices = local.shared
  }
}

trainer "trl" "policy" {
  count        = var.trainer == "trl" ? 1 : 0
  model        = var.model
  environments = [environment.atropos.gsm8k]
  steps        = var.steps
  batch_size   = local.batch
  max_length   = 2048

  config = { # TRL's own names
    learning_rate       = 3e-6
    lr_scheduler_type   = "constant"
    beta                = 0.001
    use_peft            = true
    lora_r              = 64
    lora_alpha          = 32
    lora_target_modules = ["all-linear"]
  }
  checkpoints {
    every     = 20
    keep_best = 1
  }
  placement {
    gpus    = 1
    devices = local.shared
  }
}

trainer "verl" "policy" {
  count        = var.trainer == "verl" ? 1 : 0
  model        = var.model
  environments = [environment.atropos.gsm8k]
  steps        = var.steps
  batch_size   = local.batch
  max_length   = 2048

  config = { # verl's own names
    actor = {
      optim        = { lr = 3e-6 }
      use_kl_loss  = true
      kl_loss_coef = 0.001
    }
    model     = { lora_rank = 64, lora_alpha = 32 }
    algorithm = { rollout_correction = { rollout_is = "token" } }
  }
  checkpoints {
    every     = 20
    keep_best = 1
  }
  placement {
    gpus    = 1
    devices = local.shared
  }
}

trainer "axolotl" "policy" {
  count        = var.trainer == "axolotl" ? 1 : 0
  model        = var.model
  environments = [environment.atropos.gsm8k]
  steps        = var.steps
  batch_size   = local.batch
  max_length   = 2048

  config = { # Axolotl's own names
    learning_rate      = 3e-6
    adapter            = "lora"
    lora_r             = 64
    lora_alpha         = 32
    lora_target_linear = true
    trl                = { beta = 0.001 }
  }
  checkpoints {
    every     = 20
    keep_best = 1
  }
  placement {
    gpus    = 1
    devices = local.shared
  }
}

# The adapter is merged into the weights that inference loads: decoding through an adapter is several times slower than a reload costs.
sync "weights" "policy" {
  trainer       = local.trainer
  inference     = [local.policy]
  max_staleness = 4 # older samples are not trained on
}

output "checkpoint" { value = local.trainer.checkpoint }
