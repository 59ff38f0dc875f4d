# Code that is run, and a game: two environments whose rewards come from what happens, not from comparing texts. Both train one model.

variable "model" {
  type    = string
  default = "HuggingFaceTB/SmolLM2-135M-Instruct"
}

inference "vllm" "policy" {
  model                  = var.model
  dtype                  = "float32"
  max_model_len          = 512
  gpu_memory_utilization = 0.3
  placement { devices = ["0"] }
}

environment "atropos" "code" {
  script           = "environments/programs.py"
  inference        = inference.vllm.policy
  group_size       = 8
  max_token_length = 128
  config = {
    sandbox   = "bubblewrap" # what the model's programs run in; without it the block refuses to start. "none": with your rights
    seconds   = 2            # limits of each program
    megabytes = 256
    failed    = -0.5 # worse than a wrong result, better than code that does not end
  }
}

environment "atropos" "game" {
  script           = "environments/game.py"
  inference        = inference.vllm.policy
  group_size       = 8
  max_token_length = 256
  config           = { max_turns = 6 }
}

trainer "grpo" "policy" {
  model         = var.model
  environments  = [environment.atropos.code, environment.atropos.game]
  steps         = 50
  batch_size    = 64
  learning_rate = 1e-5
  max_length    = 512
  kl { coefficient = 0 }

  placement { devices = ["0"] }
}

sync "weights" "policy" {
  trainer       = trainer.grpo.policy
  inference     = [inference.vllm.policy]
  max_staleness = 4
}

output "checkpoint" { value = trainer.grpo.policy.checkpoint }
