inference "vllm" "policy" { model = "m" }
environment "atropos" "many" {
  count     = 2
  inference = inference.vllm.policy
}
trainer "grpo" "t" {
  model        = "m"
  environments = environment.atropos.many
  steps        = 3
}
sync "weights" "s" {
  trainer   = trainer.grpo.t
  inference = environment.atropos.many[*]
}
