inference "vllm" "policy" { model = "m" }

environment "atropos" "e" {
  inference = inference.vllm.policy
  command   = ["run", task.instruction, "--n=${task.n}", join(" ", [for task in ["x"] : task])]
}
