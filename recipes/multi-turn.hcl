# GSM8K in several turns with a tool: a model that was made for tool calling solves word problems with a calculator. It
# calls the tool, reads the result, and continues until it answers. The environment runs the tool; the tool's text is part
# of the sequence, but not trained on. Without a network: config = { train_path = …, test_path = … }, as in gsm8k.hcl.

variable "model" {
  type    = string
  default = "NousResearch/DeepHermes-3-Llama-3-3B-Preview"
}

inference "vllm" "policy" {
  model                  = var.model
  max_model_len          = 2048
  gpu_memory_utilization = 0.45
  tool_call_parser       = "hermes" # for clients of /v1/chat/completions; the rollouts here carry their calls as text

  # This model's tokenizer comes with several chat templates, of which one must be chosen: default, or tool_use.
  chat_template_name = "tool_use"

  placement { devices = ["0"] }
}

environment "atropos" "calculator" {
  script           = "environments/tools.py"
  inference        = inference.vllm.policy
  group_size       = 8    # conversations about one question, scored against each other
  max_token_length = 1536 # of a whole conversation
  config = {
    max_turns      = 6
    max_new_tokens = 256 # of one turn
  }
}

trainer "grpo" "policy" {
  model         = var.model
  environments  = [environment.atropos.calculator]
  steps         = 200
  batch_size    = 128
  learning_rate = 3e-6
  max_length    = 2048

  lora {
    rank  = 32
    alpha = 32
  }
  kl { coefficient = 0.001 }

  placement { devices = ["0"] }
}

sync "weights" "policy" {
  trainer       = trainer.grpo.policy
  inference     = [inference.vllm.policy]
  max_staleness = 4
}

output "checkpoint" { value = trainer.grpo.policy.checkpoint }
