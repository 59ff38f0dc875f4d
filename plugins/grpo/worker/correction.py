"""Off-policy corrections: importance weights, rejection, and how far sampler and trainer are apart.

d (N,) is always log pi_train - log pi_sampler (old - behavior in decoupled mode, lp - behavior in bypass mode),
without gradient. The vectors hold the whole optimizer batch, so batch means are the same for every split.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from .segments import seg_count, seg_max, seg_mean, seg_sum

BOUND = 20.0  # exp(20) = 4.9e8: beyond it a ratio is noise, and exp must stay finite
REJECTIONS = tuple(
    f"{level}_{k}" for level in ("token", "seq_sum", "seq_mean", "seq_max") for k in ("k1", "k2", "k3")
    if not (level == "seq_max" and k == "k1")
)  # fmt: skip


@dataclass(frozen=True)
class Rejection:
    """One trust-region rule. k1 is compared as a ratio pi_sampler / pi_train with [low, high]; k2, k3 with high."""

    rule: str
    high: float
    low: float | None = None


def importance_weights(
    d: Tensor, seq: Tensor, n: int, level: str, mode: str = "truncate",
    high: float | None = 2.0, low: float | None = None, normalize: bool = False,
) -> Tensor:  # fmt: skip
    """(N,) weights pi_train / pi_sampler, per token or per sequence.

    mode "truncate" clamps to [low, high]; "mask" puts 0 outside of it (areal's and TRL's masked variants).
    normalize divides by the batch mean (of tokens, or of sequences at sequence level). Values carry no gradient.
    """
    d = d.detach()
    if level == "token":
        w = torch.exp(d.clamp(-BOUND, BOUND))
    elif level == "sequence":
        w = torch.exp(seg_sum(d, seq, n).clamp(-BOUND, BOUND))[seq]
    else:
        raise ValueError(f"importance level {level!r} is unknown; expected token or sequence")
    if mode == "truncate":
        w = w.clamp(min=low, max=high) if low is not None or high is not None else w
    elif mode == "mask":
        inside = torch.ones_like(w, dtype=torch.bool)
        inside &= (w <= high) if high is not None else inside
        inside &= (w >= low) if low is not None else inside
        w = torch.where(inside, w, torch.zeros_like(w))
    else:
        raise ValueError(f"importance mode {mode!r} is unknown; expected truncate or mask")
    if normalize and len(w):
        if level == "token":
            mean = w.mean()
        else:
            present = seg_count(seq, n, w.dtype) > 0
            mean = seg_mean(w, seq, n)[present].mean()
        if mean > 1e-8:
            w = w / mean
    return w


def rejection_mask(d: Tensor, seq: Tensor, n: int, rules: tuple[Rejection, ...]) -> Tensor:
    """(N,) bool: tokens that pass every rule."""
    d = d.detach().clamp(-BOUND, BOUND)
    statistics = {"k1": -d, "k2": 0.5 * d * d, "k3": torch.exp(d) - 1 - d}
    keep = torch.ones_like(d, dtype=torch.bool)
    for rule in rules:
        level, k = rule.rule.rsplit("_", 1)
        value = statistics[k]
        if level == "seq_sum":
            value = seg_sum(value, seq, n)[seq]
        elif level == "seq_mean":
            value = seg_mean(value, seq, n)[seq]
        elif level == "seq_max":
            value = seg_max(value, seq, n)[seq]
        if k == "k1":
            low = rule.low if rule.low is not None else 1 / rule.high
            keep &= (value >= math.log(low)) & (value <= math.log(rule.high))
        else:
            keep &= value <= rule.high
    return keep


def off_policy_sequence_mask(
    lp: Tensor, behavior: Tensor, adv: Tensor, seq: Tensor, n: int, threshold: float
) -> Tensor:
    """(N,) bool (DeepSeek-V3.2, slime's OPSM): a token with A < 0 is dropped when its sequence's mean log-probability
    fell by more than `threshold` since it was sampled."""
    drift = seg_mean(behavior - lp.detach(), seq, n)[seq]
    return (adv >= 0) | (drift <= threshold)


@dataclass
class Mismatch:
    """How far apart trainer and sampler are on the sampled tokens (only tokens that carry the sampler's value)."""

    tokens: int
    kl: float  # k3 estimate of KL(sampler || trainer), nats per token
    k1: float  # mean of log pi_sampler - log pi_train: unbiased, may be negative
    mean_abs: float
    max_abs: float
    ess: float  # effective sample size of the token weights, 0..1
    sequence_ess: float  # of the whole-sequence weights


def mismatch(lp: Tensor, behavior: Tensor, seq: Tensor, n: int) -> Mismatch:
    """Measures lp against behavior; NaN in behavior means the sampler did not tell."""
    known = ~torch.isnan(behavior)
    d = (lp.detach() - behavior)[known].double()
    if not len(d):
        return Mismatch(0, 0.0, 0.0, 0.0, 0.0, 1.0, 1.0)
    safe, absolute = d.clamp(-BOUND, BOUND), d.abs()
    w = torch.exp(safe)
    present = seg_count(seq[known], n, d.dtype) > 0
    ws = torch.exp(seg_sum(d, seq[known], n)[present].clamp(-BOUND, BOUND))
    found = [
        (w - 1 - safe).mean(), -d.mean(), absolute.mean(), absolute.max(), w.sum() ** 2 / (len(w) * (w * w).sum()),
        ws.sum() ** 2 / (len(ws) * (ws * ws).sum()),
    ]  # fmt: skip
    return Mismatch(len(d), *torch.stack(found).tolist())


def difference(lp: Tensor, behavior: Tensor, bounds: tuple[float | None, float | None]) -> dict[str, float]:
    """Of (M,) tokens that the sampler told of: mean and largest |difference|, k3 estimate of KL(sampler || trainer),
    and the share whose ratio trainer / sampler is outside of bounds (low, high)."""
    d = (lp.detach() - behavior).double()
    safe = d.clamp(-BOUND, BOUND)
    ratio = torch.exp(safe)
    low, high = bounds
    outside = torch.zeros_like(ratio, dtype=torch.bool)
    outside |= (ratio > high) if high is not None else outside
    outside |= (ratio < low) if low is not None else outside
    absolute = d.abs()
    values = torch.stack([absolute.mean(), absolute.max(), (ratio - 1 - safe).mean(), outside.double().mean()]).tolist()
    return dict(zip(("mean_abs", "max_abs", "kl", "clipped"), values, strict=True))
