"""Advantages that environments send themselves: which sequences use them, and what is done to the numbers.

The order is fixed: choice per sequence (or group), normalisation, clipping, set_advantage_to_zero. A sequence without
an advantage of its own gets the computed one over all scores of its group; nothing is ever filled with zeros.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

from .segments import seg_count


@dataclass
class Normalizer:
    """Running mean and variance for advantage_normalization = global; its state belongs in every checkpoint."""

    decay: float = 0.99
    mean: float = 0.0
    square: float = 0.0
    steps: int = 0

    def apply(self, a: Tensor, where: Tensor) -> Tensor:
        """Takes the batch a[where] into the running statistics, then normalizes it (bias-corrected)."""
        x = a[where].double()
        if len(x):
            self.mean = self.decay * self.mean + (1 - self.decay) * float(x.mean())
            self.square = self.decay * self.square + (1 - self.decay) * float((x * x).mean())
            self.steps += 1
        if self.steps == 0:
            return a
        correction = 1 - self.decay**self.steps
        mean, square = self.mean / correction, self.square / correction
        deviation = max(square - mean * mean, 0.0) ** 0.5
        return torch.where(where, (a - mean) / (deviation + 1e-8), a)

    def state(self) -> dict:
        """What a checkpoint keeps."""
        return {"decay": self.decay, "mean": self.mean, "square": self.square, "steps": self.steps}


@dataclass(frozen=True)
class Rules:
    """How advantages that environments send are used."""

    use: bool = True
    fallback: bool = True
    scope: str = "sequence"  # or "group": all sequences of a group or none
    normalization: str = "none"  # none | batch | global
    normalize_scope: str = "override"  # override | all
    clip: tuple[float, float] | None = None


@dataclass
class Resolved:
    """Final advantages (N,), and what to report of where they came from."""

    advantage: Tensor
    metrics: dict[str, float] = field(default_factory=dict)


class MissingAdvantageError(ValueError):
    """A sequence has no advantage of its own and the fallback is off."""


def resolve(
    computed: Tensor, sent: Tensor, has: Tensor, zeroed: Tensor, seq: Tensor, n: int, group: Tensor,
    names: list[str], o: Rules, normalizer: Normalizer, counted: Tensor | None = None,
) -> Resolved:  # fmt: skip
    """Combines computed (N,) advantages with those sent (N,; anything where has is False). In order: choice per
    sequence (or group), normalisation, clipping, set_advantage_to_zero.

    has, zeroed (S,) bool; counted (S,) bool: sequences whose computed advantage means something, default all (one
    without a score is in no statistic and stays 0); names: one "environment, group" label per group, for the error.
    Raises MissingAdvantageError when a trained sequence has none and the fallback is off."""
    present = has
    trained = seg_count(seq, n, torch.float64) > 0
    if o.scope == "group":
        n_groups = len(names)
        lacking = seg_count(group[trained & ~has], n_groups, torch.float64) > 0
        present = has & ~lacking[group]
    ignored = int(present.sum()) if not o.use else 0
    chosen = present if o.use else torch.zeros_like(present)
    if not o.fallback and bool((trained & ~chosen).any()):
        missing = sorted({names[int(g)] for g in group[trained & ~chosen]})
        raise MissingAdvantageError(
            f"{len(missing)} group(s) came without advantages and fallback_to_grpo is false: {'; '.join(missing[:5])}"
        )
    sent_tokens = chosen[seq]
    a = torch.where(sent_tokens, sent.nan_to_num(0.0), computed)
    where = sent_tokens
    if o.normalize_scope == "all":
        where = torch.ones_like(sent_tokens) if counted is None else sent_tokens | counted[seq]
    if o.normalization == "batch" and int(where.sum()) > 1:
        x = a[where]
        a = torch.where(where, (a - x.mean()) / (x.std() + 1e-8), a)
    elif o.normalization == "global":
        a = normalizer.apply(a, where)
    clipped = torch.zeros_like(sent_tokens)
    if o.clip is not None:
        low, high = o.clip
        clipped = (a < low) | (a > high)
        a = a.clamp(low, high)
    a = torch.where(zeroed[seq], torch.zeros_like(a), a)
    total = max(len(seq), 1)
    fallback_groups = len({int(g) for g in group[trained & ~chosen]})
    return Resolved(a, {
        "adv/override_frac": float(sent_tokens.sum()) / total,
        "adv/overrides_ignored": float(ignored),
        "adv/overrides_incomplete": float((has & ~present).sum()),
        "adv/fallback_groups": float(fallback_groups),
        "adv/zeroed": float(zeroed.sum()),
        "adv/clipped_frac": float(clipped.sum()) / total,
    })  # fmt: skip
