variable "n" {
  type     = number
  nullable = false
  default  = null
}
