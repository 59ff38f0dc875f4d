inference "vllm" "policy" {
  model = inference.vllm.policy.base_url
}
