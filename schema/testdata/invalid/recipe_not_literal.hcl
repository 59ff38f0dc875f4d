variable "x" { default = "n" }
recipe {
  name = var.x
}
