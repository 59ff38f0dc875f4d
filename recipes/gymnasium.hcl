# Blackjack of Gymnasium, played in text: the model reads its sum and the dealer's card, and hits or sticks. A hand is won (1), drawn (0)
# or lost (-1), and lost by an answer that names neither. What SmolLM2-135M learns first is to answer with an action, then which.
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
  description = "Interpreter with gymnasium; null: the one that recipe init makes"
}

variable "steps" {
  type    = number
  default = 12
}

variable "batch_size" {
  type    = number
  default = 32
}

locals {
  threads = var.devices == null ? { OMP_NUM_THREADS = "1" } : {} # without a GPU the blocks share a few cores

  # A model this small does not follow instructions in a chat: none of 24 answers named an action. It goes on with a text of examples.
  plain = "{% for m in messages %}{{ m.content + '\n' }}{% endfor %}"
  examples = trimspace(<<-TEXT
    your sum: 8
    the dealer's card: 6
    a usable ace: 0
    hit
    your sum: 19
    the dealer's card: 10
    a usable ace: 0
    stick
    your sum: 13
    the dealer's card: 9
    a usable ace: 1
    hit
    your sum: 20
    the dealer's card: 4
    a usable ace: 0
    stick
  TEXT
  )
}

inference "vllm" "policy" {
  model                  = var.model
  dtype                  = "float32"
  max_model_len          = 512
  enforce_eager          = true # a model this small: capturing CUDA graphs takes longer than it saves
  gpu_memory_utilization = 0.3
  cpu_kvcache_space      = 1
  chat_template          = local.plain

  placement { devices = var.devices }
  runtime { python = var.python }
  environment_variables = local.threads
  health { start_timeout = "30m" } # minutes on two busy cores
}

environment "gymnasium" "blackjack" {
  inference             = inference.vllm.policy
  id                    = "Blackjack-v1"
  instructions          = local.examples
  invalid_action        = "end"
  invalid_action_reward = -1
  group_size            = 8
  max_tokens            = 4 # of each answer
  stop                  = ["\n"]

  runtime { python = var.games_python }
}

trainer "grpo" "policy" {
  model         = var.model
  environments  = [environment.gymnasium.blackjack]
  steps         = var.steps
  batch_size    = var.batch_size
  learning_rate = 1e-5
  max_length    = 512

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
