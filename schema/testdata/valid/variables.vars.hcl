from_file = ["a", upper("b")]
wins      = "file"
unknown_here = 1
