variable "n" {
  type    = integer
  default = 3
}
