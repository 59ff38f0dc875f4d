locals {
  n = 1 / 0
}
