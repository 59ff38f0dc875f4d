# Code that is run, and a game: two environments whose rewards come from what happens, not from comparing texts. Both train one model.
# It runs on a CPU; on a machine with a GPU, --var 'devices=["0"]' puts inference and trainer on it.

variable "model" {
  type    = string
  default = "HuggingFaceTB/SmolLM2-135M-Instruct"
}

variable "devices" {
  type        = list(string)
  default     = null
  description = "GPUs that inference and trainer share; null: none"
}

variable "python" {
  type        = string
  default     = null
  description = "Interpreter with vLLM, torch, transformers and peft; null: the one that recipe init makes"
}

variable "atropos_python" {
  type        = string
  default     = null
  description = "Interpreter with atroposlib; null: the one that recipe init makes"
}

variable "steps" {
  type    = number
  default = 10
}

variable "game" {
  type        = bool
  default     = true
  description = "false: code alone, whose answers are short"
}

variable "batch_size" {
  type    = number
  default = 64
}

locals {
  threads = var.devices == null ? { OMP_NUM_THREADS = "1" } : {} # without a GPU the blocks share a few cores
}

inference "vllm" "policy" {
  model                  = var.model
  dtype                  = "float32"
  max_model_len          = 256
  enforce_eager          = true # a model this small: capturing CUDA graphs takes longer than it saves
  gpu_memory_utilization = 0.3
  cpu_kvcache_space      = 1

  placement { devices = var.devices }
  runtime { python = var.python }
  environment_variables = local.threads
  health { start_timeout = "30m" } # minutes on two busy cores
}

environment "atropos" "code" {
  script                = "environments/programs.py"
  inference             = inference.vllm.policy
  group_size            = 8
  max_token_length      = 64
  max_batches_offpolicy = 1
  evaluate_before       = true
  evaluate_after        = true
  config = {
    max_new_tokens   = 16 # of one function body
    eval_temperature = 1
    sandbox          = "bubblewrap" # what the model's programs run in; without it the block refuses to start. "none": with your rights
    seconds          = 2            # limits of each program
    megabytes        = 256
    failed           = -0.5 # worse than a wrong result, better than code that does not end
  }

  runtime { python = var.atropos_python }
  environment_variables = local.threads
  health {
    start_timeout = "30m"
    stop_timeout  = "10m" # the evaluation after training takes part of it
  }
}

environment "atropos" "game" {
  count                 = var.game ? 1 : 0
  script                = "environments/game.py"
  inference             = inference.vllm.policy
  group_size            = 8
  max_token_length      = 128
  max_batches_offpolicy = 3 # more than the faster environment's, or its groups fill the queue and games are canceled
  evaluate_before       = true
  evaluate_after        = true
  config                = { max_turns = 6 }

  runtime { python = var.atropos_python }
  environment_variables = local.threads
  health {
    start_timeout = "30m"
    stop_timeout  = "10m"
  }
}

trainer "grpo" "policy" {
  model         = var.model
  environments  = concat([environment.atropos.code], environment.atropos.game)
  steps         = var.steps
  batch_size    = var.batch_size
  learning_rate = 5e-6
  max_length    = 128

  optimizer { weight_decay = 0 }
  kl { coefficient = 0 }

  placement { devices = var.devices }
  runtime { python = var.python }
  environment_variables = local.threads
  health { start_timeout = "30m" }
}

sync "weights" "policy" {
  trainer       = trainer.grpo.policy
  inference     = [inference.vllm.policy]
  max_staleness = 4
}

output "checkpoint" { value = trainer.grpo.policy.checkpoint }
