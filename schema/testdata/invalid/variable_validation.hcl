variable "n" {
  default = 3
  validation {
    condition     = var.n > 5
    error_message = "n is at least 6, got ${var.n}."
  }
}
