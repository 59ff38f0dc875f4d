inference "vllm" "policy" { model = "m" }
environment "atropos" "e" { inference = inference.vllm.policy }
trainer "grpo" "t" {
  model        = "m"
  environments = [environment.atropos.e]
  steps        = 3
  dynamic "reward" {
    for_each = 3
    content {
      name = reward.value
    }
  }
  dynamic "reward" {
    content {}
  }
  dynamic "rewrd" {
    for_each = []
    content {}
  }
  dynamic "reward" {
    for_each = ["a"]
    content {
      nme = reward.value
    }
  }
}
