"""Closed intervals of whole numbers."""


def merge(intervals: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """The same numbers in as few intervals as possible, sorted."""
    merged: list[tuple[int, int]] = []
    for low, high in intervals:
        if merged and low <= merged[-1][1]:
            merged[-1] = (merged[-1][0], high)
        else:
            merged.append((low, high))
    return merged
