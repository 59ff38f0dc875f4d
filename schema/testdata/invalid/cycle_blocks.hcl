inference "vllm" "policy" {
  model = trainer.grpo.t.checkpoint
}
environment "atropos" "e" {
  inference = inference.vllm.policy
}
trainer "grpo" "t" {
  model        = "m"
  environments = [environment.atropos.e]
  steps        = "not a number"
}
