inference "vllm" "policy" { model = "m" }
environment "atropos" "e" { inference = inference.vllm.policy }
trainer "grpo" "t" {
  model        = "m"
  environments = [environment.atropos.e]
  steps        = 3
}
inference "vllm" "x" {
  count = trainer.grpo.t.step
  model = "m"
}
