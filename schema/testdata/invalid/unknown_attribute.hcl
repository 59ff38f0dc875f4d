inference "vllm" "policy" {
  model  = "m"
  modle_len = 3
  max_model_length = 12
}
