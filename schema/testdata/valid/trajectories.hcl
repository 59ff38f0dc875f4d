inference "vllm" "policy" { model = "m" }

trajectories "builtin" "mine" {
  store = "disk"
}
environment "atropos" "e" { inference = inference.vllm.policy }
environment "atropos" "f" {
  inference    = inference.vllm.policy
  trajectories = trajectories.builtin.mine
}
trainer "grpo" "t" {
  model        = "m"
  environments = [environment.atropos.e]
  steps        = 3
}
