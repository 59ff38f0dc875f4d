inference "vllm" "x" {
  model = "m
}
