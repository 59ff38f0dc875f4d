locals {
  l = [1]
  s = "x ${local.l}"
}
