# One vLLM server for concurrency.py.

variable "model" { type = string }
variable "python" { type = string }
variable "concurrency" { type = number }
variable "kv_cache_memory_bytes" {
  type    = number
  default = null
}
variable "max_num_seqs" {
  type    = number
  default = null
}

inference "vllm" "policy" {
  model                 = var.model
  load_format           = "dummy"
  max_model_len         = 2048
  max_num_seqs          = var.max_num_seqs
  kv_cache_memory_bytes = var.kv_cache_memory_bytes
  concurrency           = var.concurrency
  runtime { python = var.python }
}

output "url" { value = inference.vllm.policy.base_url }
output "key" {
  value     = inference.vllm.policy.api_key
  sensitive = true
}
