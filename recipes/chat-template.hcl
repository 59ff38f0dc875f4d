# A custom chat template, in both places where conversations become tokens: the environment renders its rollouts by its
# tokenizer, the server whatever asks /v1/chat/completions. One local value serves both, so that they cannot differ.

variable "model" {
  type    = string
  default = "HuggingFaceTB/SmolLM2-135M-Instruct"
}

locals {
  template = "{% for m in messages %}{{ m['role'] | upper }}: {{ m['content'] }}\n{% endfor %}{% if add_generation_prompt %}ASSISTANT: {% endif %}"
}

inference "vllm" "policy" {
  model                  = var.model
  dtype                  = "float32"
  max_model_len          = 128
  gpu_memory_utilization = 0.3
  chat_template          = local.template
  placement { devices = ["0"] }
}

environment "atropos" "addition" {
  script           = "environments/chat_template.py"
  inference        = inference.vllm.policy
  group_size       = 8
  max_token_length = 64
  config           = { chat_template = local.template }
}

trainer "grpo" "policy" {
  model         = var.model
  environments  = [environment.atropos.addition]
  steps         = 20
  batch_size    = 64
  learning_rate = 1e-5
  max_length    = 128
  kl { coefficient = 0 }

  placement { devices = ["0"] }
}

sync "weights" "policy" {
  trainer       = trainer.grpo.policy
  inference     = [inference.vllm.policy]
  max_staleness = 4
}

output "checkpoint" { value = trainer.grpo.policy.checkpoint }
