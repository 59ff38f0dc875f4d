inference "vllm" "policy" { model = "m" }
environment "atropos" "e" { inference = inference.vllm.policy }
trainer "grpo" "t" {
  model        = "m"
  environments = [environment.atropos.e]
  steps        = 3
}
sync "weights" "s" {
  trainer   = trainer.grpo.t
  inference = [inference.vllm.policy]
}
locals {
  version = sync.weights.s.version
}
inference "vllm" "late" {
  model     = "m"
  arguments = { v = local.version }
}
output "fine" { value = local.version }
