inference "vllm" "policy" { model = "m" }
inference "vllm" "policy" {
  model = "n"
}
variable "a" { default = 1 }
variable "a" { default = 2 }
locals { x = 1 }
locals { x = 2 }
output "o" { value = 1 }
output "o" { value = 2 }
