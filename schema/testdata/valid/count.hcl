inference "vllm" "policy" {
  count = 2
  model = "m-${count.index}"
}
environment "atropos" "each" {
  count     = 2
  inference = inference.vllm.policy[count.index]
}
environment "atropos" "first" {
  inference = inference.vllm.policy[0]
  judge     = inference.vllm.policy[1]
}
trainer "grpo" "t" {
  model        = inference.vllm.policy[1].tokenizer
  environments = environment.atropos.each
  steps        = 10
}
sync "weights" "s" {
  trainer   = trainer.grpo.t
  inference = inference.vllm.policy[*]
}
output "urls" { value = inference.vllm.policy[*].base_url }
inference "tiny" "none" {
  count = 0
  model = "m"
}
output "none" { value = inference.tiny.none }
