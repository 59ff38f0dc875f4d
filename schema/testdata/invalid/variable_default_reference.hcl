variable "a" { default = 1 }
variable "b" { default = var.a }
variable "c" { default = file(local.x) }
variable "d" {
  type    = list(string)
  default = [qwen]
}
