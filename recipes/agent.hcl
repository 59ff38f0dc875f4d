# An unmodified program as the environment: it speaks to the policy by base URL and key. Needs Python and nothing else.

variable "steps" {
  type    = number
  default = 60
}

variable "batch_size" {
  type    = number
  default = 64
}

variable "sandbox" {
  type        = string
  default     = "auto"
  description = "none: the program runs as you, where bubblewrap is not installed. It has no tools, and harms nothing"
}

inference "tiny" "policy" {}

environment "agent" "digits" {
  inference  = inference.tiny.policy
  command    = ["python", "environments/agent/loop.py", task.digits] # or agent = "NAME": recipe env agents lists the known ones
  tasks      = "environments/agent/tasks.jsonl"
  reward     = "environments/agent/reward.py:score"
  eval_tasks = 40
  group_size = 8
  max_tokens = 2
  budget { seconds = 60 }
  sandbox { kind = var.sandbox }
}

trainer "tiny" "policy" {
  environments  = [environment.agent.digits]
  steps         = var.steps
  batch_size    = var.batch_size
  learning_rate = 1e-3
}

sync "weights" "policy" {
  trainer       = trainer.tiny.policy
  inference     = [inference.tiny.policy]
  max_staleness = 4
}
