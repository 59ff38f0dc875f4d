locals {
  size = 3
}
inference "vllm" "policy" {
  model         = "m"
  max_model_len = local.sizes
}
