inference "vllm" "policy" { model = "m" }
environment "atropos" "e" { inference = inference.vllm.policy }
trainer "grpo" "t" {
  model        = "m"
  environments = [environment.atropos.e]
  steps        = 3
  lora {
    rank = 4
  }
  lora {
    rank = 8
  }
  placement {
    gpus = 1
  }
  placement {
    gpus = 2
  }
}
