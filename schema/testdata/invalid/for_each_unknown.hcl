inference "vllm" "policy" { model = "m" }
inference "vllm" "x" {
  for_each = toset([inference.vllm.policy.base_url])
  model    = each.key
}
