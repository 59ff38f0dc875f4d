inference "vllm" "policy" {
  model = "m"
  model = "n"
}
