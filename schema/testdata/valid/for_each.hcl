locals {
  tasks = { math = 8, code = 4 }
}
inference "vllm" "policy" { model = "m" }
environment "atropos" "task" {
  for_each   = local.tasks
  inference  = inference.vllm.policy
  group_size = each.value
  script     = "${each.key}.py"
}
environment "atropos" "list" {
  for_each  = ["a", "b"]
  inference = inference.vllm.policy
}
trainer "grpo" "all" {
  model        = "m"
  environments = environment.atropos.task
  steps        = 10
}
trainer "grpo" "one" {
  model        = "m"
  environments = [environment.atropos.task["math"], environment.atropos.list["a"]]
  steps        = 10
}
trainer "grpo" "some" {
  model        = "m"
  environments = [for name, e in environment.atropos.task : e if name != "code"]
  steps        = 10
}
trainer "grpo" "sweep" {
  for_each      = toset(["1e-6", "3e-6"])
  model         = "m"
  environments  = [for name in ["code"] : environment.atropos.task[name]]
  steps         = 10
  learning_rate = each.value
}
