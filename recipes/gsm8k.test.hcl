# Tries gsm8k.hcl with the small model of the quickstart, without a GPU or Python.
replace "inference" "vllm" {
  with = "tiny"
}
replace "environment" "atropos" {
  with = "arithmetic"
}
replace "trainer" "grpo" {
  with       = "tiny"
  batch_size = 16
}
variables {
  model = null
  steps = 2
}
run "two_steps" {
  assert {
    condition     = status == "completed" && trainer.grpo.policy[0].step == 2
    error_message = "it ended ${status}"
  }
}
