def exact(completions, answer, **kwargs):
    return [float(a == b) for a, b in zip(completions, answer)]
