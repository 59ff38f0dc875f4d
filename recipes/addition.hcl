# One-digit addition, on a machine without a GPU: real vLLM or SGLang (--var engine=sglang), an unmodified Atropos environment and
# GRPO in PyTorch, TRL, verl or Axolotl (--var trainer=trl, verl or axolotl) train SmolLM2-135M for a few minutes. scripts/venv.sh and
# scripts/model.sh make what it needs; make e2e, e2e-sglang, e2e-trl, e2e-verl and e2e-axolotl run it.
recipe {
  name = "addition"
}

variable "model" {
  type        = string
  default     = "../.cache/models/smollm2-135m"
  description = "A Hugging Face name, or a folder"
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

variable "python" {
  type        = string
  default     = ""
  description = "Interpreter with the engine, torch, transformers and peft; empty: the one that scripts/venv.sh makes for the engine"
}

variable "trainer_python" {
  type        = string
  default     = ""
  description = "Interpreter with TRL, verl or Axolotl; empty: the one that scripts/venv.sh makes for it"
}

variable "atropos_python" {
  type        = string
  default     = "../.cache/venv-atropos/bin/python"
  description = "Interpreter with atroposlib"
}

variable "steps" {
  type    = number
  default = 12
}

variable "shuffle_rewards" {
  type        = bool
  default     = false
  description = "The control: the same scores, dealt out at random"
}

variable "lora_rank" {
  type        = number
  default     = 0
  description = "Train LoRA adapters of this rank and serve them; 0: all weights are trained"
}

variable "evaluate" {
  type        = bool
  default     = true
  description = "Ask the held-out questions before and after training"
}

variable "transport" {
  type        = string
  default     = ""
  description = "How weights reach the server: ipc (through memory), reload, …; empty: files, or the adapter"
}

variable "quantization" {
  type        = string
  default     = ""
  description = "Serve the layers in float8, by which a model this small learns nothing: fp8_per_channel (vLLM); empty: in float32"
}

variable "executor" {
  type        = string
  default     = ""
  description = "Where the blocks run: slurm, on machines of a cluster, or local; empty: on this machine, without an executor"
  validation {
    condition     = contains(["", "slurm", "local"], var.executor)
    error_message = "executor is slurm or local, or empty."
  }
}

executor "slurm" "gpu" {
  count     = var.executor == "slurm" ? 1 : 0
  partition = "gpu"
}

executor "slurm" "cpu" {
  count     = var.executor == "slurm" ? 1 : 0
  partition = "cpu"
}

executor "local" "here" {
  count = var.executor == "local" ? 1 : 0
}

locals {
  gpu = concat(executor.slurm.gpu, executor.local.here, [null])[0]
  cpu = concat(executor.slurm.cpu, executor.local.here, [null])[0]

  # Everything here shares a few cores; more threads than cores make each of them slower.
  environment = { OMP_NUM_THREADS = "1", HF_HUB_OFFLINE = "1" }
  python      = var.python != "" ? var.python : "../.cache/venv-${var.engine}/bin/python"
  policy      = concat(inference.vllm.policy, inference.sglang.policy)[0] # the one that there is
  trainer     = concat(trainer.grpo.policy, trainer.trl.policy, trainer.verl.policy, trainer.axolotl.policy)[0]
  rate        = var.lora_rank > 0 ? 1e-4 : 5e-6
}

inference "vllm" "policy" {
  count             = var.engine == "vllm" ? 1 : 0
  model             = abspath(var.model)
  served_model_name = "policy"
  dtype             = var.quantization == "" ? "float32" : "bfloat16"
  quantization      = var.quantization == "" ? null : var.quantization
  max_model_len     = 128
  max_num_seqs      = 64
  enforce_eager     = true
  cpu_kvcache_space = 1
  enable_lora       = var.lora_rank > 0
  max_lora_rank     = var.lora_rank > 0 ? 8 : null

  runtime { python = local.python }
  environment_variables = local.environment
  health { start_timeout = "30m" } # seconds on a GPU machine; minutes on two busy cores
  placement { executor = local.gpu }
}

inference "sglang" "policy" {
  count                = var.engine == "sglang" ? 1 : 0
  model                = abspath(var.model)
  served_model_name    = "policy"
  dtype                = "float32"
  context_length       = 128
  max_running_requests = 64
  max_total_tokens     = 16384
  enable_lora          = var.lora_rank > 0
  max_lora_rank        = var.lora_rank > 0 ? 8 : null

  runtime { python = local.python }
  environment_variables = local.environment
  health { start_timeout = "30m" }
  placement { executor = local.gpu }
}

environment "atropos" "addition" {
  script                = "environments/addition.py"
  inference             = local.policy
  group_size            = 8
  max_token_length      = 64
  max_batches_offpolicy = 1 # fresh data: the next batch is rolled out while this one is trained
  evaluate_before       = var.evaluate
  evaluate_after        = var.evaluate
  config                = { shuffle_rewards = var.shuffle_rewards }

  runtime { python = var.atropos_python }
  environment_variables = local.environment
  health {
    start_timeout = "30m"
    stop_timeout  = "10m" # the evaluation after training takes part of it
  }
  placement { executor = local.cpu }
}

trainer "grpo" "policy" {
  count         = var.trainer == "grpo" ? 1 : 0
  model         = abspath(var.model)
  environments  = [environment.atropos.addition]
  steps         = var.steps
  batch_size    = 64 # 8 prompts × 8 completions
  learning_rate = local.rate
  max_length    = 64
  threads       = 1

  lora {
    rank  = var.lora_rank
    alpha = 16
  }
  optimizer { weight_decay = 0 }
  kl { coefficient = 0 }
  correction { old_policy = "rollout" } # ratios against what the server said when it sampled
  checkpoints { every = 4 }

  runtime { python = local.python }
  environment_variables = local.environment
  health { start_timeout = "30m" }
  placement { executor = local.gpu }
}

trainer "trl" "policy" {
  count        = var.trainer == "trl" ? 1 : 0
  model        = abspath(var.model)
  environments = [environment.atropos.addition]
  steps        = var.steps
  batch_size   = 64
  max_length   = 64
  threads      = 1
  old_policy   = "rollout"

  config = { # TRL's own names
    learning_rate               = local.rate
    lr_scheduler_type           = "constant"
    per_device_train_batch_size = 16
    gradient_checkpointing      = false
    use_peft                    = var.lora_rank > 0
    lora_r                      = var.lora_rank > 0 ? var.lora_rank : 16
    lora_alpha                  = 16
    lora_dropout                = 0
    lora_target_modules         = ["all-linear"]
  }
  checkpoints { every = 4 }

  runtime { python = var.trainer_python != "" ? var.trainer_python : "../.cache/venv-${var.trainer}/bin/python" }
  environment_variables = local.environment
  health { start_timeout = "30m" }
  placement { executor = local.gpu }
}

trainer "verl" "policy" {
  count        = var.trainer == "verl" ? 1 : 0
  model        = abspath(var.model)
  environments = [environment.atropos.addition]
  steps        = var.steps
  batch_size   = 64
  max_length   = 64
  threads      = 1

  config = { # verl's own names
    actor     = { optim = { lr = local.rate, weight_decay = 0 } }
    model     = { enable_gradient_checkpointing = false, lora_rank = var.lora_rank, lora_alpha = 16 }
    algorithm = { rollout_correction = { bypass_mode = true } } # ratios against what the server said when it sampled
  }
  checkpoints { every = 4 }

  runtime { python = var.trainer_python != "" ? var.trainer_python : "../.cache/venv-${var.trainer}/bin/python" }
  environment_variables = local.environment
  health { start_timeout = "30m" }
  placement { executor = local.gpu }
}

trainer "axolotl" "policy" {
  count        = var.trainer == "axolotl" ? 1 : 0
  model        = abspath(var.model)
  environments = [environment.atropos.addition]
  steps        = var.steps
  batch_size   = 64
  max_length   = 64
  threads      = 1
  old_policy   = "rollout"

  config = { # Axolotl's own names
    learning_rate          = local.rate
    weight_decay           = 0
    micro_batch_size       = 16
    gradient_checkpointing = false
    adapter                = var.lora_rank > 0 ? "lora" : null
    lora_r                 = var.lora_rank
    lora_alpha             = 16
    lora_target_linear     = true
  }
  checkpoints { every = 4 }

  runtime { python = var.trainer_python != "" ? var.trainer_python : "../.cache/venv-${var.trainer}/bin/python" }
  environment_variables = local.environment
  health { start_timeout = "30m" }
  placement { executor = local.gpu }
}

sync "weights" "policy" {
  trainer       = local.trainer
  inference     = [local.policy]
  every         = 1
  transport     = var.transport != "" ? var.transport : var.lora_rank > 0 ? "lora" : "reload"
  max_staleness = 4
}

output "checkpoint" { value = local.trainer.checkpoint }
