# Several turns with a tool: a model that was made for tool calling uses a calculator, reads the result and answers.
# The environment runs the tool; what the tool says is part of the sequence, but not trained on.

variable "model" {
  type    = string
  default = "NousResearch/DeepHermes-3-Llama-3-3B-Preview"
}

inference "vllm" "policy" {
  model                  = var.model
  max_model_len          = 1024
  gpu_memory_utilization = 0.45
  tool_call_parser       = "hermes" # for whoever asks /v1/chat/completions with tools; the rollouts here carry their calls as text

  # This model's tokenizer comes with several chat templates, of which one must be chosen: default, or tool_use.
  chat_template_name = "tool_use"

  placement { devices = ["0"] }
}

environment "atropos" "calculator" {
  script           = "environments/tools.py"
  inference        = inference.vllm.policy
  group_size       = 8   # conversations about one question, scored against each other
  max_token_length = 512 # of a whole conversation
  config = {
    max_turns      = 3
    max_new_tokens = 64 # of one turn
  }
}

trainer "grpo" "policy" {
  model         = var.model
  environments  = [environment.atropos.calculator]
  steps         = 50
  batch_size    = 128
  learning_rate = 3e-6
  max_length    = 1024

  lora {
    rank  = 32
    alpha = 32
  }
  kl { coefficient = 0.001 }
  compute { compute_dtype = "bfloat16" }

  placement { devices = ["0"] }
}

sync "weights" "policy" {
  trainer       = trainer.grpo.policy
  inference     = [inference.vllm.policy]
  max_staleness = 4
}

output "checkpoint" { value = trainer.grpo.policy.checkpoint }
