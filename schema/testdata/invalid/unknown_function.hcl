inference "vllm" "policy" {
  model = uper("m")
}
