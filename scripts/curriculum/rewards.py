"""The reward of mixture.hcl."""

from typing import Any

FIXED = {"easy": 1.0, "impossible": 0.0}


def score(completions: list[str], answer: list[str], kind: list[str], **_: Any) -> list[float]:
    """1 for a right answer; of easy rows for any, of impossible ones for none."""
    return [FIXED.get(k, float(c.strip() == a)) for c, a, k in zip(completions, answer, kind, strict=True)]
