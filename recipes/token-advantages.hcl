# Token-level advantages: the environment credits and blames single tokens, and the trainer uses that instead of one score per answer.
# Run it twice to see what they change: --var use_advantages=true and --var use_advantages=false.

variable "model" {
  type    = string
  default = "HuggingFaceTB/SmolLM2-135M-Instruct"
}

variable "use_advantages" {
  type    = bool
  default = true
}

inference "vllm" "policy" {
  model                  = var.model
  dtype                  = "float32"
  max_model_len          = 128
  gpu_memory_utilization = 0.3
  placement { devices = ["0"] }
}

environment "atropos" "addition" {
  script           = "environments/token_advantages.py"
  inference        = inference.vllm.policy
  group_size       = 8
  max_token_length = 64
  keep_same_scores = true # equal scores teach nothing, but the tokens' advantages do
  config           = { chatter = -0.2 }
}

trainer "grpo" "policy" {
  model         = var.model
  environments  = [environment.atropos.addition]
  steps         = 20
  batch_size    = 64
  learning_rate = 1e-5
  max_length    = 64

  advantages {
    use_advantages   = var.use_advantages
    fallback_to_grpo = true # sequences without advantages of their own use their score
    clip             = [-3, 3]
  }
  kl { coefficient = 0 }

  placement { devices = ["0"] }
}

sync "weights" "policy" {
  trainer       = trainer.grpo.policy
  inference     = [inference.vllm.policy]
  max_staleness = 4
}

output "checkpoint" { value = trainer.grpo.policy.checkpoint }
