variable "n" {
  default   = 2
  sensitive = true
}
inference "vllm" "x" {
  count = var.n
  model = "m"
}
