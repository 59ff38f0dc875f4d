variable "n" {
  tpye = number
  validation {
    condition = true
  }
  validate {}
}
variable "count" {}
