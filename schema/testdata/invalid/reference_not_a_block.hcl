environment "atropos" "e" {
  inference = "inference.vllm.policy"
}
