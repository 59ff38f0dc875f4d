"""TRL's metrics under the names that recipe shows. Those without one here keep theirs, below trl/."""

from __future__ import annotations

import math

NAMES = {
    "loss": "loss/total", "policy_loss": "loss/policy", "grad_norm": "grad_norm", "learning_rate": "learning_rate",
    "entropy": "entropy", "kl": "kl/reference", "clip_ratio/high_mean": "clip/high", "clip_ratio/low_mean": "clip/low",
    "entropy_coef": "entropy/coefficient", "aux_loss": "loss/auxiliary",
}  # fmt: skip
LEFT_OUT = ("epoch", "step_time", "num_tokens", "total_flos")


def names(logged: list[dict[str, float]]) -> dict[str, float]:
    """The mean over a batch's optimizer steps of each metric; what is not a finite number is left out."""
    out: dict[str, float] = {}
    for name in dict.fromkeys(k for logs in logged for k in logs):
        found = [logs[name] for logs in logged if isinstance(logs.get(name), (int, float))]
        found = [x for x in found if math.isfinite(x)]
        if found and name not in LEFT_OUT:
            out[NAMES.get(name, f"trl/{name}")] = sum(found) / len(found)
    return out
