# A game of two players, TicTacToe of TextArena: the policy plays against itself, and each player's games are groups of their own.
# `recipe init` makes the environment's Python environment.

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

environment "textarena" "tictactoe" {
  inference     = inference.vllm.policy
  game          = "TicTacToe-v0"
  players       = 2
  invalid_moves = 2
  group_size    = 8
  max_tokens    = 32 # of each answer
}

trainer "grpo" "policy" {
  model         = var.model
  environments  = [environment.textarena.tictactoe]
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
