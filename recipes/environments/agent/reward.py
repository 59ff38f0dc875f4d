"""The reward for what loop.py has done."""

import json
from pathlib import Path
from typing import Any


def score(task: dict[str, Any], folder: Path) -> float:
    """The share of answers that begin with the digit that the model was asked for."""
    answers = json.loads((folder / "answers.json").read_text())
    return sum(answer.startswith(digit) for answer, digit in zip(answers, task["digits"])) / len(task["digits"])
