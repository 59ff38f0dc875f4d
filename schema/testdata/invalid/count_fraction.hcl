inference "vllm" "policy" {
  count = 1.5
  model = "m"
}
