# Is it better? The quickstart, with an evaluation on held-out tasks before the first step, every 50 steps and at the end. Each result is
# of one policy version, and is compared with the first: docs/evaluation.md. Try: recipe apply recipes/held-out.hcl

variable "steps" {
  type        = number
  default     = 300
  description = "optimizer steps"
}

inference "tiny" "policy" {}

environment "arithmetic" "sums" {
  inference = inference.tiny.policy
}

trainer "tiny" "policy" {
  environments  = [environment.arithmetic.sums]
  steps         = var.steps
  batch_size    = 256
  learning_rate = 3e-4

  stop_when { # good enough: the trainer ends here
    metric   = "evaluation/held_out/pass@1/low"
    at_least = 0.95
  }
}

sync "weights" "policy" {
  trainer   = trainer.tiny.policy
  inference = [inference.tiny.policy]
}

evaluation "held_out" {
  environment = environment.arithmetic.sums
  every       = 50
  tasks       = 200
  samples     = 4
  pass_at     = [1, 4]

  gate { # judged at each evaluation after the first step
    metric    = "pass@1"
    at_least  = 0.3
    otherwise = "fail" # recipe apply fails when the last evaluation is below
  }
}
