# The worker trains a random model on what the tiny model samples: no weights go back, so no engine is needed.
variable "model" { type = string }
variable "python" { type = string }

inference "tiny" "policy" {}

environment "arithmetic" "sums" {
  inference          = inference.tiny.policy
  group_size         = 8
  drop_uninformative = true
}

trainer "grpo" "policy" {
  model        = var.model
  environments = [environment.arithmetic.sums]
  steps        = 1
  batch_size   = 8
  max_length   = 32
  threads      = 1
  loss { import = "losses/gspo.py:gspo" }
  correction { mismatch_limit = 0 } # the samples are not its own

  runtime { python = var.python }
  environment_variables = { HF_HUB_OFFLINE = "1" }
  health { start_timeout = "30m" }
}
