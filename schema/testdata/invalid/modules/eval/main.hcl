variable "model" { type = string }
inference "vllm" "m" { model = var.model }
output "url" { value = inference.vllm.m.base_url }
