locals {
  n = true ? [1] : { a = 1 }
}
