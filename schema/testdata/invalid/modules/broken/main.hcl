inference "vllm" "m" {
  model = 1 + "x"
  nope  = 2
}
