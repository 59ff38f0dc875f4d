inference "vllm" "x" {
  model = self.address
}
