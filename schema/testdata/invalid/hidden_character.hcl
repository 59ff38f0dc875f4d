locals {
  a = 1 # ‮} evil {
}
