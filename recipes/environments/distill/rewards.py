"""No reward: a loss that compares with a teacher reads none."""


def none(completions, **kwargs):
    return [0.0] * len(completions)
