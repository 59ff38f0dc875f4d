locals {
  a = local.b
  b = local.a
  x = local.y
  y = local.x
  z = local.a + var.nope
}
