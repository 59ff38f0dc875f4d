inference "vllm" "m" {
  model = "m"
  seed  = 3
}
