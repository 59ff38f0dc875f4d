inference "vllm" "x" {
  for_each = 3
  model    = "m"
}
inference "vllm" "y" {
  for_each = [1, 2]
  model    = "m"
}
