inference "vllm" "policy" { model = "m" }
environment "atropos" "e" { inference = inference.vllm.policy }
trainer "grpo" "t" {
  model        = "m"
  environments = [environment.atropos.e]
  steps        = 3
}
sync "weights" "s" {
  trainer   = inference.grpo.t
  inference = [inference.vllm.policy]
}
