# environments/gsm8k.py with SmolLM2-135M on a CPU, on the word problems that words.py writes: docs/benchmarks/learning.md.
recipe { name = "gsm8k-words" }
variable "steps" {
  type    = number
  default = 16
}
variable "root" {
  description = "The clone, after scripts/venv.sh vllm, scripts/venv.sh atropos and scripts/model.sh"
  type        = string
}
locals {
  environment = { OMP_NUM_THREADS = "1", HF_HUB_OFFLINE = "1" }
  model       = "${var.root}/.cache/models/smollm2-135m"
  # A small model follows examples in plain text, not instructions.
  examples = "Joe has 3 balls and gets 1 more. How many balls does Joe have now?\nAnswer: \\boxed{4}\n\nJoe has 2 balls and gets 3 more. How many balls does Joe have now?\nAnswer: \\boxed{5}\n\nJoe has 6 balls and gets 2 more. How many balls does Joe have now?\nAnswer: \\boxed{8}\n\n"
  template = "${local.examples}{{ messages[-1]['content'] }}\nAnswer:"
}
inference "vllm" "policy" {
  model             = local.model
  served_model_name = "policy"
  chat_template     = local.template
  dtype             = "float32"
  max_model_len     = 256
  max_num_seqs      = 64
  enforce_eager     = true
  cpu_kvcache_space = 1
  runtime { python = "${var.root}/.cache/venv-vllm/bin/python" }
  environment_variables = local.environment
  health { start_timeout = "10m" }
}
environment "atropos" "gsm8k" {
  script                = "${var.root}/recipes/environments/gsm8k.py"
  inference             = inference.vllm.policy
  group_size            = 8
  max_token_length      = 8
  max_batches_offpolicy = 1
  evaluate_before       = true
  evaluate_after        = true
  config = {
    train_path     = abspath("train.jsonl")
    test_path      = abspath("test.jsonl")
    length_penalty = false
    eval_limit     = 64
    system_prompt  = ""
    chat_template  = local.template
  }
  runtime { python = "${var.root}/.cache/venv-atropos/bin/python" }
  environment_variables = local.environment
  health {
    start_timeout = "10m"
    stop_timeout  = "10m"
  }
}
trainer "grpo" "policy" {
  model         = local.model
  environments  = [environment.atropos.gsm8k]
  steps         = var.steps
  batch_size    = 64
  learning_rate = 2e-5
  max_length    = 128
  threads       = 1
  optimizer { weight_decay = 0 }
  kl { coefficient = 0 }
  correction { old_policy = "rollout" }
  checkpoints { every = 8 }
  runtime { python = "${var.root}/.cache/venv-vllm/bin/python" }
  environment_variables = local.environment
  health { start_timeout = "10m" }
}
sync "weights" "policy" {
  trainer       = trainer.grpo.policy
  inference     = [inference.vllm.policy]
  max_staleness = 2
}
