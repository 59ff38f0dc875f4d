a = "x"
b = var.a
block {}
