# What learn.py times: a task of reasoning-gym, learned by SmolLM2-135M, trainer and vLLM on one GPU. Whatever is not set
# has its default.

variable "model" { type = string }
variable "python" { type = string }
variable "steps" { type = number }
variable "prompts" { type = number }
variable "group_size" { type = number }
variable "max_tokens" { type = number }
variable "memory" { type = number }
variable "lora_rank" { type = number }
variable "learning_rate" { type = number }
variable "seed" { type = number }
variable "held_out" { type = number }
variable "dataset" { type = string }
variable "dataset_config" { type = any }
variable "prompt_template" { type = string }
variable "answer_pattern" { type = string }

variable "environment" {
  type    = map(string)
  default = {}
}
variable "lora_merged" {
  type    = bool
  default = null
}
variable "float8" {
  type    = string
  default = null
}
variable "quantization" { # of the layers that vLLM serves; the trainer's stay as they are
  type    = string
  default = null
}
variable "device" { # null on a machine without a GPU
  type    = string
  default = null
}
variable "dtype" { # in bfloat16 vLLM serves a model as small as this too inexactly for the check of each update
  type    = string
  default = "float32"
}
variable "tolerance" {
  type    = number
  default = 0 # chosen by precision
}

inference "vllm" "policy" {
  model                  = var.model
  dtype                  = var.dtype
  quantization           = var.quantization
  max_model_len          = 256
  gpu_memory_utilization = var.device == null ? null : var.memory
  enforce_eager          = var.device == null ? true : null
  cpu_kvcache_space      = var.device == null ? 1 : null
  placement { devices = var.device == null ? [] : [var.device] }
  runtime { python = var.python }
  environment_variables = var.environment
}

environment "reasoning_gym" "task" {
  inference       = inference.vllm.policy
  group_size      = var.group_size
  max_tokens      = var.max_tokens
  seed            = var.seed
  eval_tasks      = var.held_out
  prompt_template = var.prompt_template
  answer_pattern  = var.answer_pattern
  datasets {
    name   = var.dataset
    config = var.dataset_config
  }
  runtime { python = var.python }
  environment_variables = var.environment
}

trainer "grpo" "policy" {
  model         = var.model
  environments  = [environment.reasoning_gym.task]
  steps         = var.steps
  batch_size    = var.prompts * var.group_size
  learning_rate = var.learning_rate
  max_length    = 256
  seed          = var.seed
  lora {
    rank   = var.lora_rank
    alpha  = 32
    merged = var.lora_merged
  }
  optimizer { weight_decay = 0 } # TRL's default
  kl { coefficient = 0 }         # TRL's default
  compute {
    compute_dtype = var.dtype
    float8        = var.float8
  }
  checkpoints { every = 0 }
  placement { devices = var.device == null ? [] : [var.device] }
  runtime { python = var.python }
  environment_variables = var.environment
}

sync "weights" "policy" {
  trainer   = trainer.grpo.policy
  inference = [inference.vllm.policy]
  tolerance = var.tolerance
}
