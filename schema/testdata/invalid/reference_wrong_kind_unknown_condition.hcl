inference "vllm" "policy" { model = "m" }
environment "atropos" "e" { inference = inference.vllm.policy }
trainer "grpo" "t" {
  model        = "m"
  environments = [environment.atropos.e]
  steps        = 3
}
environment "atropos" "bad" {
  inference = trainer.grpo.t.step > 3 ? environment.atropos.e : inference.vllm.policy
}
