# Reward functions in TRL's signature and a dataset in JSON lines, on the small model of the quickstart: needs Python and nothing else.

variable "steps" {
  type    = number
  default = 100
}

inference "tiny" "policy" {}

environment "reward" "sums" {
  inference          = inference.tiny.policy
  dataset            = "environments/reward/sums.jsonl"
  group_size         = 16
  max_tokens         = 4
  drop_uninformative = false

  functions {
    function = "environments/reward/rewards.py:right"
  }
  functions {
    function = "environments/reward/rewards.py:digits"
    weight   = 0.1
  }
}

trainer "tiny" "policy" {
  environments  = [environment.reward.sums]
  steps         = var.steps
  batch_size    = 256
  learning_rate = 3e-4
}

sync "weights" "policy" {
  trainer       = trainer.tiny.policy
  inference     = [inference.tiny.policy]
  max_staleness = 4
}

output "checkpoint" { value = trainer.tiny.policy.checkpoint }
