inference "vllm" "policy" {
  model                  = "m"
  gpu_memory_utilization = 1.5
  max_model_len          = 1
}
