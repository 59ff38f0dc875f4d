inference "vllm" "policy" { model = "m" }
environment "atropos" "e" { inference = inference.vllm.policy }
trainer "grpo" "t" {
  model        = "m"
  environments = [environment.atropos.e]
  steps        = 3
}
inference "vllm" "x" {
  model = "m"
  stop_when {
    wall = "1h"
  }
}
trainer "grpo" "u" {
  model        = "m"
  environments = [environment.atropos.e]
  steps        = 3
  stop_when {
    metric = "reward"
  }
  stop_when {
    wall   = "1h"
    tokens = 3
  }
  stop_when {
    metric = "reward"
    above  = 1
    below  = 2
  }
}
