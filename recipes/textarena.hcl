# A game of two players, TicTacToe of TextArena: the policy plays against itself, and each player's games are groups of their own. What a
# model learns first are the rules: metrics/invalid_actions falls.
# It runs on a CPU; on a machine with a GPU, --var 'devices=["0"]' puts inference and trainer on it. `recipe init` makes the Python
# environments.

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

variable "games_python" {
  type        = string
  default     = null
  description = "Interpreter with textarena; null: the one that recipe init makes"
}

variable "steps" {
  type    = number
  default = 20
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
  max_model_len          = 1024
  enforce_eager          = true # a model this small: capturing CUDA graphs takes longer than it saves
  gpu_memory_utilization = 0.3
  cpu_kvcache_space      = 1

  placement { devices = var.devices }
  runtime { python = var.python }
  environment_variables = local.threads
  health { start_timeout = "30m" } # minutes on two busy cores
}

environment "textarena" "tictactoe" {
  inference     = inference.vllm.policy
  game          = "TicTacToe-v0"
  players       = 2
  invalid_moves = 2
  instructions  = "Answer with the number of a free square in brackets, such as [4], and nothing else."
  group_size    = 8
  max_tokens    = 4 # of each answer

  runtime { python = var.games_python }
}

trainer "grpo" "policy" {
  model         = var.model
  environments  = [environment.textarena.tictactoe]
  steps         = var.steps
  batch_size    = var.batch_size
  learning_rate = 1e-5
  max_length    = 1024

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
