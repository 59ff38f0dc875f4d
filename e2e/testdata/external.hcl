# A trainer learns from what a server outside of recipe samples: no sync block, so the server keeps its weights.
variable "endpoint" { type = string }
variable "model" { type = string }
variable "trainer_python" { type = string }

variable "key" {
  type      = string
  sensitive = true
}

inference "vllm" "policy" {
  model = var.model
  external {
    endpoint = var.endpoint
    api_key  = var.key
    model    = "policy"
  }
}

environment "arithmetic" "sums" {
  inference            = inference.vllm.policy
  group_size           = 8
  drop_uninformative   = false
  min_batch_allocation = 0.25
}

environment "reward" "digits" {
  inference            = inference.vllm.policy
  dataset              = "environments/reward/sums.jsonl"
  function             = "environments/reward/rewards.py:digits"
  group_size           = 8
  max_tokens           = 8
  drop_uninformative   = false
  min_batch_allocation = 0.25
}

trainer "TRAINER" "policy" { # the test writes which
  model        = var.model
  environments = [environment.arithmetic.sums, environment.reward.digits]
  steps        = 1
  batch_size   = 32
  max_length   = 64
  threads      = 1

  runtime { python = var.trainer_python }
  environment_variables = { OMP_NUM_THREADS = "1", HF_HUB_OFFLINE = "1" }
  health { start_timeout = "30m" }
}
