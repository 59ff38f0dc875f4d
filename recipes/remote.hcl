# One recipe, three profiles: everything on this machine, a trajectory API that runs elsewhere, or one behind https and a path. The
# profile is a file of variables:
#
#   recipe apply recipes/remote.hcl                                                    local: the API is started here
#   recipe apply --var-file recipes/profiles/remote.vars.hcl recipes/remote.hcl        http://HOST:8000
#   recipe apply --var-file recipes/profiles/production.vars.hcl recipes/remote.hcl    https://HOST/api, with a token

variable "trajectories_url" {
  type        = string
  default     = ""
  description = "Where a trajectory API runs already; empty: it is started here. What the Atropos guide calls ATROPOS_API_URL"
}

variable "timeout" {
  type        = number
  default     = 30
  description = "Seconds that a request to it may take. What the guide calls ATROPOS_TIMEOUT"
}

variable "atropos_path" {
  type        = string
  default     = "."
  description = "A checkout of Atropos, or any folder with environments. What the guide calls ATROPOS_PATH"
}

variable "batch_retry" {
  type        = object({ attempts = number, longest = number })
  default     = { attempts = 8, longest = 12 }
  description = "Polls for a batch before a round ends, and the longest pause between two, in seconds"
}

variable "trajectories_token" {
  type        = string
  default     = ""
  sensitive   = true
  description = "Its token; best given as RECIPE_VAR_trajectories_token, which no list of processes shows"
}

trajectories "builtin" "here" {
  count = var.trajectories_url == "" ? 1 : 0
}

trajectories "builtin" "elsewhere" { # checked and used, never started or stopped
  count = var.trajectories_url == "" ? 0 : 1
  external {
    endpoint = var.trajectories_url
    token    = var.trajectories_token
  }
}

locals {
  rollouts = one(concat(trajectories.builtin.here, trajectories.builtin.elsewhere))
}

inference "vllm" "policy" {
  model         = "Qwen/Qwen2.5-1.5B-Instruct"
  max_model_len = 2048
  placement { gpus = 1 }
}

environment "atropos" "gsm8k" {
  path             = var.atropos_path
  script           = "environments/gsm8k.py"
  inference        = inference.vllm.policy
  trajectories     = local.rollouts
  group_size       = 8
  max_token_length = 1024
}

trainer "grpo" "policy" {
  model        = "Qwen/Qwen2.5-1.5B-Instruct"
  environments = [environment.atropos.gsm8k]
  trajectories = local.rollouts
  steps        = 100
  batch_size   = 128
  lora { rank = 32 }
  data {
    timeout              = var.timeout
    batch_retry_attempts = var.batch_retry.attempts
    batch_max_wait       = var.batch_retry.longest
  }
  placement { gpus = 1 }
}

sync "weights" "policy" {
  trainer      = trainer.grpo.policy
  inference    = [inference.vllm.policy]
  trajectories = local.rollouts
}
