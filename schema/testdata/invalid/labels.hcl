inference "vllm" {
  model = "m"
}
variable "a" "b" {}
locals "x" {}
