variable "m" { default = 1 }
variable "n" {
  default = 3
  validation {
    condition     = var.n > var.m
    error_message = "n must be above m."
  }
}
