# The loop that compare.py times: trainer and vLLM on one GPU, random weights, random scores. Each attribute that is null has its default.

variable "model" { type = string }
variable "python" { type = string }
variable "steps" { type = number }
variable "prompts" { type = number }
variable "group_size" { type = number }
variable "max_tokens" { type = number }
variable "memory" { type = number }
variable "lora_rank" { type = number }

variable "trainer" {
  type    = string
  default = "grpo"
}
variable "environment" {
  type    = map(string)
  default = {}
}
variable "compile" {
  type    = bool
  default = null
}
variable "float8" {
  type    = string
  default = null
}
variable "gradient_checkpointing" {
  type    = bool
  default = null
}
variable "row_tokens" {
  type    = number
  default = null
}
variable "api_server_count" {
  type    = number
  default = null
}
variable "in_flight" {
  type    = string
  default = null
}
variable "ahead" {
  type    = number
  default = null
}
variable "concurrency" {
  type    = number
  default = null
}
variable "stream_interval" {
  type    = number
  default = null
}
variable "kv_cache_memory_bytes" {
  type    = number
  default = null
}
variable "compiled" {
  type    = bool
  default = null
}
variable "quantization" {
  type    = string
  default = null
}
variable "sleep" {
  type    = bool
  default = null
}
variable "extra_args" {
  type    = list(string)
  default = null
}
variable "device" {
  type    = string
  default = "0"
}
variable "trainer_devices" { # a rank on each
  type    = list(string)
  default = null
}
variable "tensor_parallel_size" {
  type    = number
  default = 1
}
variable "inference_devices" { # a server on each, which may be named twice; null: one, beside the trainer
  type    = list(string)
  default = null
}
variable "tolerance" {
  type    = number
  default = null
}
variable "transport" {
  type    = string
  default = null
}

locals {
  trainer_devices   = var.trainer_devices == null ? [var.device] : var.trainer_devices
  inference_devices = var.inference_devices == null ? [var.device] : var.inference_devices
}

inference "vllm" "policy" {
  model                  = var.model
  dtype                  = "bfloat16"
  max_model_len          = var.max_tokens + 256
  gpu_memory_utilization = var.memory
  api_server_count       = var.api_server_count
  stream_interval        = var.stream_interval
  kv_cache_memory_bytes  = var.kv_cache_memory_bytes
  compile                = var.compiled
  quantization           = var.quantization
  enable_sleep_mode      = var.sleep
  extra_args             = var.extra_args
  tensor_parallel_size   = var.tensor_parallel_size
  replicas               = length(local.inference_devices) / var.tensor_parallel_size
  peer_devices           = var.inference_devices == null || var.transport == "nccl" ? null : local.trainer_devices
  placement { devices = local.inference_devices }
  runtime { python = var.python }
  environment_variables = var.environment
}

environment "scores" "random" {
  inference             = inference.vllm.policy
  group_size            = var.group_size
  max_tokens            = var.max_tokens
  max_batches_offpolicy = var.ahead
  concurrency           = var.concurrency
}

trainer "grpo" "policy" {
  count         = var.trainer == "grpo" ? 1 : 0
  model         = var.model
  environments  = [environment.scores.random]
  steps         = var.steps
  batch_size    = var.prompts * var.group_size
  learning_rate = 3e-6
  max_length    = var.max_tokens + 256
  lora {
    rank  = var.lora_rank
    alpha = 32
  }
  kl { coefficient = 0 } # TRL's default
  compute {
    compute_dtype          = "bfloat16"
    float8                 = var.float8
    compile                = var.compile
    gradient_checkpointing = var.gradient_checkpointing
    row_tokens             = var.row_tokens
  }
  checkpoints { every = 0 }
  placement { devices = local.trainer_devices }
  runtime { python = var.python }
  environment_variables = var.environment
}

trainer "trl" "policy" {
  count        = var.trainer == "trl" ? 1 : 0
  model        = var.model
  environments = [environment.scores.random]
  steps        = var.steps
  batch_size   = var.prompts * var.group_size
  max_length   = var.max_tokens + 256
  config = { # as trl_loop.py has them
    learning_rate               = 3e-6
    lr_scheduler_type           = "constant"
    dtype                       = var.lora_rank > 0 ? "bfloat16" : "float32"
    per_device_train_batch_size = 8
    use_peft                    = var.lora_rank > 0
    lora_r                      = max(var.lora_rank, 1)
    lora_alpha                  = 32
    lora_dropout                = 0
    lora_target_modules         = ["all-linear"]
  }
  checkpoints { every = 0 }
  placement { devices = local.trainer_devices }
  runtime { python = var.python }
  environment_variables = var.environment
}

sync "weights" "policy" {
  trainer   = concat(trainer.grpo.policy, trainer.trl.policy)[0]
  inference = [inference.vllm.policy]
  in_flight = var.in_flight
  transport = var.transport
  tolerance = var.tolerance
}
