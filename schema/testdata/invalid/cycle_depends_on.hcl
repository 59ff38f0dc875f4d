inference "vllm" "a" {
  model      = "m"
  depends_on = [inference.vllm.b]
}
inference "vllm" "b" {
  model = inference.vllm.a.base_url
}
