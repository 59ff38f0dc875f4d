inference "vllm" "policy" { model = "m" }
environment "atropos" "e" {
  inference = inference.vllm.polciy
}
environment "atropos" "f" {
  inference = inference.tiny.policy
}
