inference "vllm" "policy" { model = "m" }

environment "atropos" "e" { inference = inference.vllm.policy }
trainer "grpo" "warmup" {
  model        = "m"
  environments = [environment.atropos.e]
  steps        = 1
}
trainer "grpo" "main" {
  model        = "m"
  environments = [environment.atropos.e]
  steps        = 1
  depends_on = [
    { block = trainer.grpo.warmup, condition = "completed" },
    { block = environment.atropos.e, condition = "started" },
    inference.vllm.policy,
  ]
}
module "later" {
  source     = "../modules/eval"
  model      = "m"
  depends_on = [trainer.grpo.main]
}
inference "vllm" "last" {
  model      = "m"
  depends_on = [module.later]
}
