inference "vllm" "policy" {
  count = 2
  model = "m"
}
environment "atropos" "e" {
  inference = inference.vllm.policy
}
