# FrozenLake of Gymnasium, played in text: four actions, a picture of the lake in each turn, a reward at the goal. The lake is so small
# that SmolLM2-135M crosses it by chance now and then; give a larger model a larger one, --var 'lake=["SFFF","FHFH","FFFH","HFFG"]'.
# It runs on a CPU; on a machine with a GPU, --var 'devices=["0"]' puts inference and trainer on it. `recipe init` makes the Python
# environments.

variable "model" {
  type    = string
  default = "HuggingFaceTB/SmolLM2-135M-Instruct"
}

variable "lake" {
  type        = list(string)
  default     = ["SF", "HG"]
  description = "S: start, F: ice, H: hole, G: goal"
}

variable "max_turns" {
  type    = number
  default = 4
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
  description = "Interpreter with gymnasium; null: the one that recipe init makes"
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

environment "gymnasium" "lake" {
  inference             = inference.vllm.policy
  id                    = "FrozenLake-v1"
  config                = { is_slippery = false, desc = var.lake }
  instructions          = "You walk on ice, from S to G and not into H. Brackets stand where you are. Answer with one word: left, down, right or up."
  invalid_action_reward = -0.1
  group_size            = 8
  max_tokens            = 4 # of each answer
  max_turns             = var.max_turns

  runtime { python = var.games_python }
}

trainer "grpo" "policy" {
  model         = var.model
  environments  = [environment.gymnasium.lake]
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
