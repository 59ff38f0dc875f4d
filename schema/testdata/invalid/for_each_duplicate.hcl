inference "vllm" "x" {
  for_each = ["a", "b", "a"]
  model    = each.key
}
