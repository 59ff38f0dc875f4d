inference "vllm" "policy" { model = "m" }
environment "atropos" "e" { inference = inference.vllm.policy }
trainer "grpo" "t" {
  model        = "m"
  environments = [environment.atropos.e]
  steps        = 3
}
inference "vllm" "a" {
  model      = "m"
  depends_on = trainer.grpo.t
}
inference "vllm" "b" {
  model      = "m"
  depends_on = [trainer.grpo.t.step]
}
inference "vllm" "c" {
  model      = "m"
  depends_on = ["trainer.grpo.t"]
}
inference "vllm" "d" {
  model      = "m"
  depends_on = [{ block = trainer.grpo.t, condition = "done" }]
}
inference "vllm" "e" {
  model      = "m"
  depends_on = [{ block = inference.vllm.policy, condition = "completed" }]
}
inference "vllm" "f" {
  model      = "m"
  depends_on = [var.x, trainer.grpo.u]
}
