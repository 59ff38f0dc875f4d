WORDS = ["apple", "banana", "avocado"]
