inference "vllm" "p" {
  model         = null
  max_model_len = null
}
environment "atropos" "e" {
  inference = null
  tags      = ["a", null]
}
inference "vllm" "q" {
  count = null
  model = "m"
}
