# One server for concurrency.py.

variable "engine" { type = string }
variable "model" { type = string }
variable "python" { type = string }
variable "environment" { type = map(string) }
variable "concurrency" { type = number }
variable "sequences" {
  type        = number
  description = "The engine's own limit"
}
variable "cache_bytes" { type = number }
variable "cache_tokens" {
  type        = number
  description = "The same size, for an engine that counts it in tokens"
}

locals {
  policy = concat(inference.vllm.policy, inference.sglang.policy)[0] # the one that there is
}

inference "vllm" "policy" {
  count                 = var.engine == "vllm" ? 1 : 0
  model                 = var.model
  load_format           = "dummy"
  max_model_len         = 2048
  max_num_seqs          = var.sequences
  kv_cache_memory_bytes = var.cache_bytes
  concurrency           = var.concurrency
  environment_variables = var.environment
  runtime { python = var.python }
}

inference "sglang" "policy" {
  count                 = var.engine == "sglang" ? 1 : 0
  model                 = var.model
  load_format           = "dummy"
  context_length        = 2048
  max_running_requests  = var.sequences
  max_total_tokens      = var.cache_tokens
  concurrency           = var.concurrency
  environment_variables = var.environment
  runtime { python = var.python }
}

output "url" { value = local.policy.base_url }
output "key" {
  value     = local.policy.api_key
  sensitive = true
}
