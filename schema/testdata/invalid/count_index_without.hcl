inference "vllm" "x" {
  model = "m-${count.index}"
}
inference "vllm" "y" {
  count = 2
  model = each.key
}
