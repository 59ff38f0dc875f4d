variable "model" { type = string }
inference "vllm" "x" { model = var.model }
