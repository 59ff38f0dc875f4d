inference "vllm" "policy" { model = "m" }
output "u" { value = inference.vllm.policy[0].base_url }
