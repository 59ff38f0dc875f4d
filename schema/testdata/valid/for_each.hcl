locals {
  tasks = { math = 8, code = 4 }
  rates = toset(["1e-6", "3e-6"])
}
inference "vllm" "policy" { model = "m" }
trajectories "builtin" "q" { for_each = setunion(local.rates, ["shared"]) }
environment "atropos" "task" {
  for_each     = local.tasks
  inference    = inference.vllm.policy
  trajectories = trajectories.builtin.q["shared"]
  group_size   = each.value
  script       = "${each.key}.py"
}
environment "atropos" "list" {
  for_each     = ["a", "b"]
  inference    = inference.vllm.policy
  trajectories = trajectories.builtin.q["shared"]
}
environment "atropos" "sweep" {
  for_each     = local.rates
  inference    = inference.vllm.policy
  trajectories = trajectories.builtin.q[each.key]
}
trainer "grpo" "all" {
  model        = "m"
  environments = environment.atropos.task
  trajectories = trajectories.builtin.q["shared"]
  steps        = 10
}
trainer "grpo" "one" {
  model        = "m"
  environments = [environment.atropos.task["math"], environment.atropos.list["a"]]
  trajectories = trajectories.builtin.q["shared"]
  depends_on   = [{ block = trainer.grpo.all, condition = "completed" }]
  steps        = 10
}
trainer "grpo" "some" {
  model        = "m"
  environments = [for name, e in environment.atropos.task : e if name != "code"]
  trajectories = trajectories.builtin.q["shared"]
  depends_on   = [{ block = trainer.grpo.one, condition = "completed" }]
  steps        = 10
}
trainer "grpo" "sweep" {
  for_each      = local.rates
  model         = "m"
  environments  = [for name in [each.key] : environment.atropos.sweep[name]]
  trajectories  = trajectories.builtin.q[each.key]
  steps         = 10
  learning_rate = each.value
}
