"""Advantages for trainers that have no estimator of their own."""

from __future__ import annotations

import torch
from torch import Tensor


def group_relative(scores: Tensor, group: Tensor, groups: int, epsilon: float = 1e-6) -> Tensor:
    """GRPO's advantage: (score - mean of the group) / (standard deviation + epsilon), ddof 1.

    scores: float64 [n], NaN where there is none; group: int64 [n], 0 ... groups - 1. float64 [n]: 0 for a sequence
    without a score, and for one that is alone among the scored ones of its group."""
    scored = ~torch.isnan(scores)
    values = torch.where(scored, scores, torch.zeros_like(scores))

    def total(x: Tensor) -> Tensor:
        return x.new_zeros(groups).index_add(0, group, x)

    count = total(scored.to(scores.dtype))
    mean = total(values) / count.clamp(min=1)
    centred = torch.where(scored, values - mean[group], torch.zeros_like(values))
    deviation = (total(centred * centred) / (count - 1).clamp(min=1)).sqrt()
    return centred / (deviation[group] + epsilon)
