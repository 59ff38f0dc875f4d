inference "vllm" "policy" {
  model = "m"
  placment {
    gpus = 1
  }
}
