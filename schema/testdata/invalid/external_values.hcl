inference "vllm" "p" {
  model = "m"
  external {
    endpoint      = ["http://x"]
    max_model_len = "many"
    inner {}
  }
}
inference "vllm" "q" {
  model = "m"
  external {
    endpoint      = "http://x"
    max_model_len = "many"
  }
}
