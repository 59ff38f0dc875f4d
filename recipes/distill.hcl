# On-policy distillation on a machine without a GPU: a student samples, and a teacher that is served says how likely each of its tokens
# is. No reward is read. The student is SmolLM2-135M without two of its layers, made by environments/distill/student.py (docs/distillation.md).

variable "teacher" {
  type        = string
  default     = "../.cache/models/smollm2-135m"
  description = "A Hugging Face name, or a folder"
}

variable "student" {
  type        = string
  default     = "../.cache/models/smollm2-student"
  description = "A model with the teacher's tokenizer: a Hugging Face name, or a folder"
}

variable "python" {
  type        = string
  default     = "../.cache/venv-vllm/bin/python"
  description = "Interpreter with vLLM, torch and transformers"
}

variable "steps" {
  type    = number
  default = 16
}

locals {
  environment = { OMP_NUM_THREADS = "1", HF_HUB_OFFLINE = "1" } # everything here shares a few cores
}

inference "vllm" "policy" {
  model             = abspath(var.student)
  dtype             = "float32"
  max_model_len     = 64
  max_num_seqs      = 32
  enforce_eager     = true
  cpu_kvcache_space = 1

  runtime { python = var.python }
  environment_variables = local.environment
  health { start_timeout = "30m" } # seconds on a GPU machine; minutes on two busy cores
}

inference "vllm" "teacher" { # no sync block: its weights stay
  model             = abspath(var.teacher)
  dtype             = "float32"
  max_model_len     = 64 # at least one token more than max_length of the trainer
  max_num_seqs      = 32
  enforce_eager     = true
  cpu_kvcache_space = 1

  runtime { python = var.python }
  environment_variables = local.environment
  health { start_timeout = "30m" }
}

environment "reward" "prompts" {
  inference          = inference.vllm.policy
  dataset            = "environments/distill/prompts.jsonl"
  function           = "environments/distill/rewards.py:none"
  group_size         = 4
  max_tokens         = 16
  eval_rows          = 16    # held out
  drop_uninformative = false # all scores are equal
}

trainer "grpo" "student" {
  model         = abspath(var.student)
  environments  = [environment.reward.prompts]
  steps         = var.steps
  batch_size    = 32 # 8 prompts × 4 completions
  learning_rate = 1e-5
  max_length    = 48
  threads       = 1

  loss { name = "distill" }
  reference { inference = inference.vllm.teacher }
  kl { coefficient = 0 } # the loss itself compares with the teacher
  optimizer { weight_decay = 0 }
  checkpoints { every = 8 }

  runtime { python = var.python }
  environment_variables = local.environment
  health { start_timeout = "30m" }
}

sync "weights" "student" {
  trainer       = trainer.grpo.student
  inference     = [inference.vllm.policy]
  max_staleness = 4
}

output "checkpoint" { value = trainer.grpo.student.checkpoint }
