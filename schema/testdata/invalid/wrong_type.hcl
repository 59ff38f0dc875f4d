inference "vllm" "policy" {
  model         = "m"
  max_model_len = "many"
}
