PROMPTS = ("write",)
