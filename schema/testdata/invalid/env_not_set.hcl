inference "vllm" "x" {
  model = "m"
  token = env("HF_TOKN")
}
