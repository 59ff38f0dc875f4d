inference "vllm" "policy" {
  count = -1
  model = "m"
}
