inference "vllm" "policy" { model = "m" }
output "u" { value = inference.vllm.policy.base_urll }
