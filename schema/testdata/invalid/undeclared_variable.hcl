variable "model" { default = "m" }
inference "vllm" "policy" {
  model = var.modle
}
inference "vllm" "other" {
  model = var.zzz
}
