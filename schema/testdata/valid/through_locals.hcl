locals {
  servers = [inference.vllm.a, inference.vllm.b]
  urls    = { for s in local.servers : s.address => s.base_url }
}
inference "vllm" "a" { model = "m" }
inference "vllm" "b" { model = inference.vllm.a.tokenizer }
environment "atropos" "e" {
  inference = local.servers[1]
  config    = { urls = local.urls }
}
output "urls" { value = local.urls }
