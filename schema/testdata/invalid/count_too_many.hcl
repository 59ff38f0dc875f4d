inference "vllm" "policy" {
  count = 1000000
  model = "m"
}
