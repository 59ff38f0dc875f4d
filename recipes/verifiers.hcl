# A taskset of verifiers, of two turns, on the small model of the quickstart. `recipe init` makes the Python environment with verifiers;
# no GPU is needed. Another taskset: install its package by runtime { requirements = [...] } and write its name.

variable "steps" {
  type    = number
  default = 60
}

variable "python" {
  type        = string
  default     = null
  description = "Interpreter with verifiers. Default: the one that recipe init makes"
}

inference "tiny" "policy" {}

environment "verifiers" "sevens" {
  inference          = inference.tiny.policy
  taskset            = "sevens"
  path               = "environments/verifiers"
  config             = { questions = 100 }
  eval_tasks         = 20
  group_size         = 16
  max_tokens         = 4
  drop_uninformative = false
  runtime { python = var.python }
}

trainer "tiny" "policy" {
  environments  = [environment.verifiers.sevens]
  steps         = var.steps
  batch_size    = 128
  learning_rate = 1e-3
}

sync "weights" "policy" {
  trainer       = trainer.tiny.policy
  inference     = [inference.tiny.policy]
  max_staleness = 4
}

output "checkpoint" { value = trainer.tiny.policy.checkpoint }
