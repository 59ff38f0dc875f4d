inference "vllm" "policy" { model = "m" }
environment "atropos" "e" {
  inference = inference.vllm
}
