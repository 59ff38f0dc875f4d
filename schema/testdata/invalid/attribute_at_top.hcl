model = "m"
