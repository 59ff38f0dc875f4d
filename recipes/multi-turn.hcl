# Word problems in several turns with a tool: the model calls a calculator, reads the result, and continues until it answers. The
# environment runs the tool; the tool's text is part of the sequence, but not trained on. By default a model that was made for tool
# calling is trained on GSM8K on a GPU; with a file of variables SmolLM2-135M is trained on products of two numbers, on a CPU:
#
#   recipe apply --var-file recipes/profiles/multi-turn-cpu.vars.hcl recipes/multi-turn.hcl
#
# With another file the model searches a folder of texts as well, and is asked what stands in them:
#
#   recipe apply --var-file recipes/profiles/multi-turn-search.vars.hcl recipes/multi-turn.hcl

variable "model" {
  type    = string
  default = "NousResearch/DeepHermes-3-Llama-3-3B-Preview"
}

variable "chat_template_name" {
  type        = string
  default     = "tool_use"
  description = "For a tokenizer with several chat templates, as the default model has: default, or tool_use; null: it has one"
}

variable "devices" {
  type        = list(string)
  default     = ["0"]
  description = "GPUs that inference and trainer share; null: none"
}

variable "dtype" {
  type        = string
  default     = null
  description = "Precision of both; null: their own choice for the machine"
}

variable "python" {
  type        = string
  default     = null
  description = "Interpreter with vLLM, torch, transformers and peft; null: the one that recipe init makes"
}

variable "atropos_python" {
  type        = string
  default     = null
  description = "Interpreter with atroposlib; null: the one that recipe init makes"
}

variable "config" {
  type        = any
  default     = { max_turns = 6, max_new_tokens = 256 } # of one turn
  description = "Settings of environments/tools.py. Without a network, or for other questions: train_path and test_path"
}

variable "steps" {
  type    = number
  default = 200
}

variable "batch_size" {
  type    = number
  default = 128
}

variable "learning_rate" {
  type    = number
  default = 3e-6
}

variable "lora_rank" {
  type        = number
  default     = 32
  description = "0: all weights are trained"
}

variable "max_length" {
  type        = number
  default     = 2048
  description = "Tokens of a whole conversation"
}

locals {
  threads = var.devices == null ? { OMP_NUM_THREADS = "1" } : {} # without a GPU the blocks share a few cores
}

inference "vllm" "policy" {
  model                  = var.model
  dtype                  = var.dtype
  max_model_len          = var.max_length
  enforce_eager          = var.devices == null
  gpu_memory_utilization = 0.45
  cpu_kvcache_space      = 1
  tool_call_parser       = "hermes" # for clients of /v1/chat/completions; the rollouts here carry their calls as text
  chat_template_name     = var.chat_template_name

  placement { devices = var.devices }
  runtime { python = var.python }
  environment_variables = local.threads
  health { start_timeout = "30m" } # minutes on two busy cores
}

environment "atropos" "calculator" {
  script                = "environments/tools.py"
  inference             = inference.vllm.policy
  group_size            = 8 # conversations about one question, scored against each other
  max_token_length      = var.max_length
  max_batches_offpolicy = 1
  evaluate_before       = true
  evaluate_after        = true
  config                = var.config

  runtime { python = var.atropos_python }
  environment_variables = local.threads
  health {
    start_timeout = "30m"
    stop_timeout  = "10m" # the evaluation after training takes part of it
  }
}

trainer "grpo" "policy" {
  model         = var.model
  environments  = [environment.atropos.calculator]
  steps         = var.steps
  batch_size    = var.batch_size
  learning_rate = var.learning_rate
  max_length    = var.max_length

  lora {
    rank  = var.lora_rank
    alpha = var.lora_rank
  }
  kl { coefficient = var.lora_rank > 0 ? 0.001 : 0 } # without adapters it needs a second model

  placement { devices = var.devices }
  runtime { python = var.python }
  environment_variables = local.threads
  health { start_timeout = "30m" }
}

sync "weights" "policy" {
  trainer       = trainer.grpo.policy
  inference     = [inference.vllm.policy]
  max_staleness = 4
}

output "checkpoint" { value = trainer.grpo.policy.checkpoint }
