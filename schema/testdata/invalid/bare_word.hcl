inference "vllm" "policy" {
  model = qwen
}
