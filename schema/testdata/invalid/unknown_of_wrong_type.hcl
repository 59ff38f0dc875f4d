inference "vllm" "p" { model = "m" }
environment "atropos" "e" { inference = inference.vllm.p }
trainer "grpo" "t" {
  model        = "m"
  environments = [environment.atropos.e]
  steps        = split(",", inference.vllm.p.base_url)
  reward { name = split(",", inference.vllm.p.base_url) }
  reward { name = "b" }
}
