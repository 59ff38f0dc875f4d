inference "vllm" "x" {
  model = 
}
