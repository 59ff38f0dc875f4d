"""Prints the share of cases that pass, as the reward."""

import json
import sys

sys.path.insert(0, "/app")

CASES = [
    ([(1, 3), (2, 5)], [(1, 5)]),
    ([(7, 8), (1, 3), (2, 5)], [(1, 5), (7, 8)]),
    ([(1, 9), (2, 3)], [(1, 9)]),
    ([], []),
    ([(4, 6), (1, 1)], [(1, 1), (4, 6)]),
]


def passed(given: list[tuple[int, int]], want: list[tuple[int, int]]) -> bool:
    """Whether the function gives what is wanted."""
    try:
        from intervals import merge

        return [tuple(one) for one in merge(list(given))] == want
    except Exception:
        return False


share = sum(passed(given, want) for given, want in CASES) / len(CASES)
print(json.dumps({"reward": 1.0 if share == 1 else 0.0, "cases": share}))
