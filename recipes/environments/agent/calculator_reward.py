"""The reward for what calculator.py has done."""

from pathlib import Path
from typing import Any


def score(task: dict[str, Any], folder: Path) -> float:
    """1 for the right answer, 0 for another one and for none."""
    answer = folder / "answer.txt"
    return float(answer.exists() and answer.read_text() == str(task["answer"]))
