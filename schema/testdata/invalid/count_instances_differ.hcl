inference "vllm" "p" {
  count         = 3
  model         = "m"
  max_model_len = 15 + count.index
  dtype         = ["auto", "x", "y"][count.index]
}
