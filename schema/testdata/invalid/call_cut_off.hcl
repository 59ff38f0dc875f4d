locals {
  x = element(["a"],