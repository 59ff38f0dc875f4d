# Sums of two numbers below 50, of which a third can be learned. The others are scored 1 or 0 whatever the answer: too easy,
# and impossible. compare.py counts the rollouts with a curriculum and without.

variable "seed" { type = number }
variable "steps" { type = number }
variable "curriculum" { type = bool }

inference "tiny" "policy" {}

environment "reward" "sums" {
  inference     = inference.tiny.policy
  dataset       = "rows.jsonl"
  eval_rows     = 200
  function      = "rewards.py:score"
  group_size    = 16
  max_tokens    = 4
  stop          = ["\n"]
  seed          = var.seed
  sampling_seed = var.seed

  dynamic "curriculum" {
    for_each = var.curriculum ? [1] : []
    content {}
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

evaluation "held_out" {
  environment = environment.reward.sums
  every       = 25
  samples     = 4
}
