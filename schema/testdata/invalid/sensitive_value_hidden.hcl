inference "vllm" "policy" {
  model = "m"
  dtype = sensitive("hunter2")
}
