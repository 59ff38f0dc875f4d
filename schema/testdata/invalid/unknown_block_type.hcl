inferense "vllm" "policy" {
  model = "m"
}
resource "x" "y" {}
