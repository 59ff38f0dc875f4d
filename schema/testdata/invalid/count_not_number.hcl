inference "vllm" "policy" {
  count = "two"
  model = "m"
}
