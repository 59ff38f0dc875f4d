# An unmodified program with a tool as the environment: environments/agent/calculator.py, which knows nothing of training. By default
# a model is trained on a GPU; with a file of variables SmolLM2-135M on a CPU:
#
#   recipe apply --var-file recipes/profiles/agent-tools-cpu.vars.hcl recipes/agent-tools.hcl

variable "model" {
  type    = string
  default = "Qwen/Qwen2.5-0.5B-Instruct"
}

variable "devices" {
  type        = list(string)
  default     = ["0"]
  description = "GPUs that inference and trainer share; null: none"
}

variable "dtype" {
  type        = string
  default     = null
  description = "Precision of both; null: their own choice for the machine"
}

variable "python" {
  type        = string
  default     = null
  description = "Interpreter with vLLM, torch and transformers; null: the one that recipe init makes"
}

variable "reward" {
  type    = string
  default = "environments/agent/calculator_reward.py:score"
}

variable "steps" {
  type    = number
  default = 40
}

variable "batch_size" {
  type    = number
  default = 128
}

variable "learning_rate" {
  type    = number
  default = 3e-6
}

variable "programs" {
  type        = number
  default     = 64
  description = "How many run at once"
}

variable "seed" {
  type    = number
  default = 0
}

locals {
  threads = var.devices == null ? { OMP_NUM_THREADS = "1" } : {} # without a GPU the blocks share a few cores
}

inference "vllm" "policy" {
  model                  = var.model
  dtype                  = var.dtype
  max_model_len          = 512
  enforce_eager          = var.devices == null
  gpu_memory_utilization = 0.45
  cpu_kvcache_space      = 1
  seed                   = var.seed

  placement { devices = var.devices }
  runtime { python = var.python }
  environment_variables = local.threads
  health { start_timeout = "30m" } # minutes on two busy cores
}

environment "agent" "calculator" {
  inference  = inference.vllm.policy
  command    = ["python", "environments/agent/calculator.py", task.question]
  tasks      = "environments/agent/calculations.jsonl"
  reward     = var.reward
  eval_tasks = 40
  group_size = 8
  max_tokens = 24
  programs   = var.programs
  seed       = var.seed
  budget {
    turns   = 5
    seconds = 600
  }
  sandbox { kind = "none" } # the program's one tool is arithmetic
}

trainer "grpo" "policy" {
  model         = var.model
  environments  = [environment.agent.calculator]
  steps         = var.steps
  batch_size    = var.batch_size
  learning_rate = var.learning_rate
  max_length    = 512
  seed          = var.seed
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
