inference "vllm" "x" {
  count    = 1
  for_each = {}
  model    = "m"
}
