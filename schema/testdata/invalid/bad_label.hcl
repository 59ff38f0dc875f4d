inference "vllm" "my policy" {
  model = "m"
}
