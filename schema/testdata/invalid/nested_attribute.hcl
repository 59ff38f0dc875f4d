inference "vllm" "policy" {
  model = "m"
  placement {
    gpu = 1
  }
}
