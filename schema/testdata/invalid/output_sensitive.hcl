inference "vllm" "x" { model = "m" }
output "key" { value = inference.vllm.x.api_key }
output "novalue" {}
output "bad" {
  value = 1
  vlaue = 2
}
