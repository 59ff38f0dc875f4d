# Two environments feed one trainer: grade-school mathematics, and logic puzzles of reasoning-gym. Each keeps its own group size,
# weight and share.

variable "model" {
  type    = string
  default = "Qwen/Qwen2.5-1.5B-Instruct"
}

inference "vllm" "policy" {
  model         = var.model
  max_model_len = 2048
  replicas      = 2 # behind one address; requests with a common beginning go to the same one
  placement { gpus = 2 }
}

environment "atropos" "gsm8k" {
  script               = "environments/gsm8k.py"
  inference            = inference.vllm.policy
  group_size           = 8
  max_token_length     = 1024
  weight               = 2   # gets twice the inference of the other
  min_batch_allocation = 0.5 # and at least half of each batch
}

environment "atropos" "puzzles" {
  script           = "environments/reasoning_gym_server.py"
  inference        = inference.vllm.policy
  group_size       = 4 # group sizes may differ; batches are packed exactly
  max_token_length = 1024
  config = {
    dataset         = "knights_knaves" # who tells the truth?
    dataset_config  = { n_people = 2 }
    chat            = true
    prompt_template = "{question}\nThink step by step, then write the answer as <answer>…</answer>."
    answer_pattern  = "(?<=<answer>)[^<]+"
    max_new_tokens  = 768
  }
}

trainer "grpo" "policy" {
  model         = var.model
  environments  = [environment.atropos.gsm8k, environment.atropos.puzzles]
  steps         = 100
  batch_size    = 128
  learning_rate = 3e-6
  max_length    = 2048

  lora {
    rank  = 32
    alpha = 32
  }
  kl { coefficient = 0.001 }

  placement { gpus = 1 }
}

sync "weights" "policy" {
  trainer       = trainer.grpo.policy
  inference     = [inference.vllm.policy]
  max_staleness = 4
}

output "checkpoint" { value = trainer.grpo.policy.checkpoint }
