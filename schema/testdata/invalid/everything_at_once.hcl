variable "model" {}
inference "vlm" "a" {
  model = var.model
}
inference "vllm" "b" {
  modle = var.mdoel
  dtype = "x"
}
environment "atropos" "c" {
  inference  = inference.vllm.bb
  group_size = "x"
}
trainer "grpo" "d" {
  model        = local.x
  environments = [inference.vllm.b]
  steps        = 0
}
output "e" { value = trainer.grpo.d.chekpoint }
