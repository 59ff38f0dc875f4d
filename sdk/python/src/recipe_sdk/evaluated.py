"""The results of a run's evaluation blocks, which the engine writes beside the checkpoints: by them the best are kept.
internal/evaluated is the same in Go."""

from __future__ import annotations

import json
import math
import os
import stat
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

FILE = "evaluations.json"
VERSION = 1
PREFIX = "evaluation/"
# How many checkpoints stay at most because their evaluation is not finished. Checkpoints that stay for another reason
# do not count. Inference holds the weights of one evaluation at a time.
WAITING = 2
LIMIT = 64 << 20


class Kept(NamedTuple):
    """Steps of checkpoints that are not to be removed, and what there is to be said of them."""

    steps: set[int]
    warning: str = ""


def is_evaluation(metric: str) -> bool:
    """Whether an evaluation block reports the metric."""
    return metric.startswith(PREFIX)


def read(folder: Path) -> dict[str, Any]:
    """The content of the file. OSError or ValueError when it cannot be read."""
    path = folder / FILE
    handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(handle, "rb") as file:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            raise ValueError(f"{path} is not a regular file")
        text = file.read(LIMIT + 1)
    if len(text) > LIMIT:
        raise ValueError(f"{path} has more than {LIMIT} bytes")
    found = json.loads(text)
    if not isinstance(found, dict) or found.get("v") != VERSION:
        raise ValueError(f"{path} is not of format version {VERSION}")
    return found


def keep(folder: Path, metric: str, every: Sequence[int], others: Sequence[int], best: int) -> Kept:
    """The steps of the checkpoints that stay: the `best` best of `every` one, and of `others` (which stay for no other
    reason) the ones whose evaluation is not finished. Both are ascending. Where the results cannot be read, the oldest
    of `others` stay: they were kept for their results before."""
    try:
        evaluation, number = _of(read(folder), metric)
        values = {int(r["step"]): _number(r["metrics"].get(number)) for r in evaluation["results"]}
        waiting = [s for s in others if _awaited(evaluation, s)]
    except (OSError, ValueError, KeyError, TypeError, AttributeError, ArithmeticError, RecursionError) as e:
        known = f"it is not known which checkpoint is the best by {metric}: {e!s}"
        return Kept(set(others[: best + WAITING]), known)
    ranked = sorted((v, s) for s in every if (v := values.get(s)) is not None)
    warning = ""
    if len(waiting) > WAITING:
        warning = (f"the checkpoint of step {waiting[-WAITING - 1]} is not kept any longer for evaluation "
                   f"{evaluation['name']}, which is not finished: at most {WAITING} wait for it")  # fmt: skip
    return Kept({s for _, s in ranked[-best:]} | set(waiting[-WAITING:]), warning)


def _of(found: dict[str, Any], metric: str) -> tuple[dict[str, Any], str]:
    """The evaluation of a metric, and the name of its number."""
    name, _, number = metric.removeprefix(PREFIX).partition("/")
    for evaluation in found["evaluations"]:
        if evaluation["name"] == name:
            return evaluation, number or evaluation["metric"]
    raise ValueError(f"{FILE} has no evaluation {name}")


def _number(value: Any) -> float | None:
    return float(value) if isinstance(value, int | float) and math.isfinite(value) else None


def _awaited(evaluation: dict[str, Any], step: int) -> bool:
    """Whether the evaluation of a step is due and not finished."""
    every, period = int(evaluation["every"]), max(1, int(evaluation["period"]))
    if every <= 0 or step <= int(evaluation["done"]) or step <= 0 or step % period:
        return False
    # Each multiple of `every` is due at the newest step up to it at which inference gets weights, the first at the
    # first.
    first = 0 if step == period else step - 1
    return (step + period - 1) // every > first // every
