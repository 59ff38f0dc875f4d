inference "vllm" "policy" { model = "m" }

executor "slurm" "cluster" { partition = "gpu" }
environment "atropos" "e" { inference = inference.vllm.policy }
trainer "grpo" "t" {
  model        = "m"
  environments = [environment.atropos.e]
  steps        = 3
  placement {
    gpus     = 2
    devices  = ["0", "1"]
    executor = executor.slurm.cluster
    host     = "node1"
  }
  restart {
    attempts = 5
    window   = "1h"
    mode     = "ignore"
  }
  health {
    start_timeout = "20m"
  }
  runtime {
    python       = "3.12"
    requirements = ["torch==2.9"]
  }
  environment_variables = {
    TOKEN = env("HF_TOKEN")
    URL   = inference.vllm.policy.base_url
    N     = 3
    GONE  = null
  }
  stop_when {
    metric   = "reward"
    at_least = 0.95
    for      = 3
  }
  stop_when { tokens = 1000000 }
  stop_when { wall = "2h" }
  lifecycle {
    precondition {
      condition     = inference.vllm.policy.max_model_len >= 1024
      error_message = "The policy's context is too short: ${inference.vllm.policy.max_model_len}."
    }
    postcondition {
      condition     = self.step > 0
      error_message = "No step was done."
    }
  }
}
inference "vllm" "adopted" {
  model = "m"
  external {
    endpoint = "http://127.0.0.1:8000"
    api_key  = env("HF_TOKEN")
    model    = "served"
  }
}
