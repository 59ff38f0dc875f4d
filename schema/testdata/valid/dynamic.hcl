inference "vllm" "policy" { model = "m" }

environment "atropos" "e" { inference = inference.vllm.policy }
locals {
  rewards = { accuracy = 1, format = 0.1 }
  lora    = true
}
trainer "grpo" "t" {
  model        = "m"
  environments = [environment.atropos.e]
  steps        = 3
  reward { name = "length" }
  dynamic "reward" {
    for_each = local.rewards
    iterator = r
    content {
      name   = r.key
      weight = r.value
    }
  }
  dynamic "lora" {
    for_each = local.lora ? [8] : []
    content { rank = lora.value }
  }
}
trainer "grpo" "later" {
  depends_on   = [{ block = trainer.grpo.t, condition = "completed" }]
  model        = "m"
  environments = [environment.atropos.e]
  steps        = 3
  dynamic "reward" {
    for_each = [for i in range(3) : "r${i}"]
    content { name = "${reward.key}-${reward.value}" }
  }
}
