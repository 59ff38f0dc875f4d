inference "vllm" "policy" {
}
trainer "grpo" "t" {
}
