inference "vllm" "x" {
  for_each = toset([sensitive("a")])
  model    = each.key
}
