inference "vllm" "policy" { model = "m" }
environment "atropos" "e" { inference = inference.vllm.policy }
trainer "grpo" "t" {
  model        = "m"
  environments = [environment.atropos.e]
  steps        = 3
}
sync "weights" "s" {
  trainer   = trainer.grpo.t
  inference = [for e in [environment.atropos.e] : e]
}
