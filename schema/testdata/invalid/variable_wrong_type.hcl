variable "n" {
  type    = number
  default = "three"
}
