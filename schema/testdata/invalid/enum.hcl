inference "vllm" "policy" {
  model = "m"
  dtype = "float16"
}
