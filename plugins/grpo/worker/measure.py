"""Metrics of a step: numbers that say themselves how micro-batches and ranks are put together.

A metric stays on the device until the step reduces all of them at once (`Totals.reduce`): one collective for sums, one
for maxima, one copy to the host. Nothing here waits for the device before that.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

REDUCTIONS = ("sum", "mean", "max")


@dataclass(frozen=True)
class Metric:
    """One number (0-d, without gradient) of one micro-batch. reduction: sum = added up; mean = `value` is a sum over
    `count` entries, which are added up as well; max = the greatest."""

    reduction: str
    value: Tensor
    count: int = 0


def total(x: Tensor) -> Metric:
    """The sum of x over micro-batches and ranks."""
    x = x.detach()
    return Metric("sum", x.sum() if x.dim() else x)


def mean(x: Tensor) -> Metric:
    """The mean over the entries of x, of all micro-batches and ranks. For a bool tensor the share that is True."""
    return Metric("mean", x.detach().sum(), x.numel())


def maximum(x: Tensor) -> Metric:
    """The greatest entry of x over micro-batches and ranks; without any entry it is left out."""
    x = x.detach()
    return Metric("max", x.max() if x.numel() else x.new_full((), float("-inf"), dtype=torch.float64))


def checked(metrics: dict[str, Any]) -> dict[str, Metric]:
    """The metrics that a loss has returned; TypeError when one does not say how it is reduced."""
    for name, m in metrics.items():
        if not isinstance(m, Metric):
            raise TypeError(
                f"metric {name!r}: expected mean(x), total(x) or maximum(x), which say how micro-batches and ranks are "
                f"put together; got {type(m).__name__}"
            )
    return metrics


class Totals:
    """Metrics added up over the micro-batches of one optimizer step."""

    def __init__(self, device: torch.device):
        self.device = device
        self.names: list[tuple[str, str]] = []  # (name, reduction), from the first micro-batch on
        self.sums: Tensor | None = None
        self.maxima: Tensor | None = None
        self.counts: list[int] = []

    def add(self, metrics: dict[str, Metric]) -> None:
        """Takes in one micro-batch. Every one must come with the same metrics."""
        names = [(name, m.reduction) for name, m in metrics.items()]
        values = torch.stack([m.value.double() for m in metrics.values()])
        counts = [m.count for m in metrics.values()]
        if self.sums is None:
            self.names, self.sums, self.maxima, self.counts = names, values.clone(), values, counts
            return
        if names != self.names:
            raise ValueError(f"metrics differ between micro-batches: first {self.names}, then {names}")
        self.sums += values
        self.maxima = torch.maximum(self.maxima, values)
        self.counts = [a + b for a, b in zip(self.counts, counts, strict=True)]

    def reduce(self, ranks: Any) -> dict[str, float]:
        """The step's numbers, the same on every rank."""
        known = next((names for names in ranks.gather(self.names) if names), [])  # a rank may have had no work
        if not known:
            return {}
        if self.sums is None:
            self.names, self.counts = known, [0] * len(known)
            self.sums = torch.zeros(len(known), dtype=torch.float64, device=self.device)
            self.maxima = torch.full_like(self.sums, float("-inf"))
        counts = torch.tensor(self.counts, dtype=torch.float64, device=self.device)
        sums = ranks.sum_by_host(torch.cat([self.sums, counts]))
        values = torch.cat([sums, ranks.max_by_host(self.maxima)]).tolist()
        n, out = len(known), {}
        for k, (name, reduction) in enumerate(known):
            if reduction == "max":
                if values[2 * n + k] > float("-inf"):
                    out[name] = values[2 * n + k]
                continue
            out[name] = values[k] / max(values[n + k], 1) if reduction == "mean" else values[k]
        return out
