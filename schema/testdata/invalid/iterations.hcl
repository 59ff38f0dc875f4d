locals {
  r = range(1000)
  n = [for a in local.r : [for b in local.r : [for c in local.r : 1]]]
}
