locals {
  o     = { alpha = 1, beta = { gamma = 2 } }
  l     = ["x", "y"]
  empty = []
  a     = local.o.alpah
  b     = local.o.beta.gama
  c     = local.l[2]
  d     = local.empty[0]
  e     = local.o["delta"]
  f     = local.l.name
  g     = [for x in [local.o] : x.alhpa]
  h     = { x = 1 }[lower("Y")]
  i     = (local.o).zeta
}
