variable "l" {
  type    = list(string)
  default = []
  validation {
    condition     = var.l != [] # a warning
    error_message = "must not be empty"
  }
}
variable "any" { default = [] }
inference "vllm" "m" { model = "m" }
output "never" { value = [var.l == ["a"], { a = toset(var.l) != {} }, { "a" = 1 } == tomap({ a = 1 })] }
output "sometimes" { value = [var.any == [], var.l == tolist(["a"]), length(var.l) == 0, { a = 1 } == { a = 1 }] }
