# An environment behind a server of OpenEnv: a number is to be guessed in four turns. The server is started beside the block; base_url
# instead of command names one that runs elsewhere. `recipe init` makes its Python environment.

variable "model" {
  type    = string
  default = "HuggingFaceTB/SmolLM2-135M-Instruct"
}

inference "vllm" "policy" {
  model                  = var.model
  dtype                  = "float32"
  max_model_len          = 1024
  gpu_memory_utilization = 0.3
  placement { devices = ["0"] }
}

environment "openenv" "guess" {
  inference   = inference.vllm.policy
  command     = ["python", "-m", "uvicorn", "guess:app", "--uds", "{socket}"]
  command_dir = "environments/openenv"
  group_size  = 8
  max_tokens  = 16 # of each answer
  max_turns   = 4
  runtime { requirements = ["openenv==0.10.0"] }
}

trainer "grpo" "policy" {
  model         = var.model
  environments  = [environment.openenv.guess]
  steps         = 100
  batch_size    = 64
  learning_rate = 1e-5
  max_length    = 1024
  kl { coefficient = 0 }

  placement { devices = ["0"] }
}

sync "weights" "policy" {
  trainer       = trainer.grpo.policy
  inference     = [inference.vllm.policy]
  max_staleness = 4
}

output "checkpoint" { value = trainer.grpo.policy.checkpoint }
