variable "big" {
  type    = bool
  default = false
}
inference "vllm" "big" { model = "m" }
inference "tiny" "small" { model = "m" }
environment "atropos" "e" {
  inference = var.big ? inference.vllm.big : (inference.tiny.small)
  judge     = var.big ? inference.vllm.big : null
}
