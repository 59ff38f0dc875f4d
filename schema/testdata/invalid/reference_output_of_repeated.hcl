inference "vllm" "policy" {
  count = 2
  model = "m"
}
output "u" { value = inference.vllm.policy.base_url }
