inference "vllm" "policy" { model = "m" }

trajectories "builtin" "a" {}
trajectories "builtin" "b" {}
environment "atropos" "e" {
  inference    = inference.vllm.policy
  trajectories = trajectories.builtin.b
}
