inference "vllm" "policy" { model = "m" }
inference "vllm" "x" {
  model = "m"
  placement {
    gpus = sensitive(1)
  }
  runtime {
    python = inference.vllm.policy.base_url
  }
}
