inference "vllm" "policy" { model = "m" }
inference "vllm" "x" {
  model = "m"
  placement {
    executor = inference.vllm.policy
  }
}
