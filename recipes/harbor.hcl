# Task folders in Harbor's format: an agent works on each in a sandbox, and its tests give the reward.

variable "steps" {
  type    = number
  default = 60
}

variable "batch_size" {
  type    = number
  default = 32
}

variable "tasks" {
  type    = string
  default = "environments/harbor/digits" # environments/harbor/tasks has harder ones
}

variable "seed" {
  type    = number
  default = 0
}

inference "tiny" "policy" {}

environment "harbor" "digits" {
  inference     = inference.tiny.policy
  command       = ["python", "environments/harbor/agent.py", task.instruction] # or agent = "NAME": recipe env agents lists them
  tasks         = var.tasks
  group_size    = 8
  max_tokens    = 2
  seed          = var.seed
  sampling_seed = var.seed
  budget { seconds = 60 }
}

trainer "tiny" "policy" {
  environments  = [environment.harbor.digits]
  steps         = var.steps
  batch_size    = var.batch_size
  learning_rate = 1e-3
}

sync "weights" "policy" {
  trainer       = trainer.tiny.policy
  inference     = [inference.tiny.policy]
  max_staleness = 4
}
