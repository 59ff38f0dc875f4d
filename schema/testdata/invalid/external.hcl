inference "vllm" "policy" { model = "m" }
environment "atropos" "e" { inference = inference.vllm.policy }
trainer "grpo" "t" {
  model        = "m"
  environments = [environment.atropos.e]
  steps        = 3
  external {
    endpoint = "http://x"
  }
}
inference "vllm" "x" {
  model = "m"
  external {
    url = "http://x"
  }
}
