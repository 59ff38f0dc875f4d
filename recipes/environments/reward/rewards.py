"""Reward functions in TRL's signature: lists of completions and of the dataset's columns in, a list of rewards out."""


def right(completions, answer, **kwargs):
    """1 for the right answer and 0 for anything else."""
    return [float(text == want) for text, want in zip(completions, answer)]


def digits(completions, **kwargs):
    """The share of characters that are digits."""
    return [sum(c.isdigit() for c in text) / max(len(text), 1) for text in completions]
