variable "model" { type = string }
variable "size" {
  type    = number
  default = 1024
}
inference "vllm" "policy" {
  model         = var.model
  max_model_len = var.size * 100
}
output "policy" { value = inference.vllm.policy }
output "model" { value = var.model }
