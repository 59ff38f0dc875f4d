inference "vllm" "x" {
  count = 2
  model = "m"
}
output "u" { value = inference.vllm.x[2].base_url }
