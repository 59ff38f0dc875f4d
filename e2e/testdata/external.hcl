# A trainer learns from what a server outside of recipe samples: no sync block, so the server keeps its weights. The test
# writes ENGINE and TRAINER.
variable "endpoint" { type = string }
variable "engine" { type = string }
variable "model" { type = string }
variable "atropos_python" { type = string }
variable "trainer_python" { type = string }

variable "key" {
  type      = string
  sensitive = true
}

locals {
  environment = { OMP_NUM_THREADS = "1", HF_HUB_OFFLINE = "1" }
  completions = var.engine == "vllm" ? 1 : 0 # /v1/completions has token ids
  generate    = var.engine == "sglang" ? 1 : 0
}

inference "ENGINE" "policy" {
  model = var.model
  external {
    endpoint  = var.endpoint
    api_key   = var.key
    model     = "policy"
    tokenizer = var.model
  }
}

environment "arithmetic" "sums" {
  count                = local.completions
  inference            = inference.ENGINE.policy
  group_size           = 8
  drop_uninformative   = false
  min_batch_allocation = 0.25
}

environment "reward" "digits" {
  count                = local.completions
  inference            = inference.ENGINE.policy
  dataset              = "environments/reward/sums.jsonl"
  function             = "environments/reward/rewards.py:digits"
  group_size           = 8
  max_tokens           = 8
  drop_uninformative   = false
  min_batch_allocation = 0.25
}

environment "atropos" "addition" {
  count            = local.generate
  inference        = inference.ENGINE.policy
  script           = "environments/addition.py"
  server_type      = "sglang"
  group_size       = 8
  max_token_length = 64
  keep_same_scores = true

  runtime { python = var.atropos_python }
  environment_variables = local.environment
  health { start_timeout = "30m" }
}

trainer "TRAINER" "policy" {
  model        = var.model
  environments = concat(environment.arithmetic.sums, environment.reward.digits, environment.atropos.addition)
  steps        = 1
  batch_size   = 32
  max_length   = 64
  threads      = 1

  runtime { python = var.trainer_python }
  environment_variables = local.environment
  health { start_timeout = "30m" }
}
