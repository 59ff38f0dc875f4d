"""How per-token losses become one number: coefficients, KL estimators, entropy.

Every aggregation here is linear, so it is written as one coefficient per token, computed once from the whole optimizer
batch. The loss of any micro-batch on any rank is then sum(coefficient * loss), and the optimizer step cannot depend on
how the batch was split (the most reported defect of other trainers: verl#5625, #7321, #906).
"""

from __future__ import annotations

import torch
from torch import Tensor

from .segments import seg_count, seg_sum

# canonical names first; then what other projects call the same formula
AGGREGATIONS = (
    "token-mean", "seq-mean-token-sum", "seq-mean-token-mean", "seq-mean-token-sum-norm",
    "batch-mean-token-mean", "batch-mean-token-sum", "batch-sum-norm",
)  # fmt: skip
AGGREGATION_ALIASES = {
    "dapo": "token-mean", "bnpo": "token-mean", "cispo": "token-mean", "vespo": "token-mean",
    "grpo": "batch-mean-token-mean", "sapo": "batch-mean-token-mean", "luspo": "batch-mean-token-sum",
    "dr_grpo": "batch-sum-norm",
}  # fmt: skip
KL_ESTIMATORS = ("k1", "abs", "k2", "k3", "k1+", "abs+", "k2+", "k3+")
KL_ALIASES = {"kl": "k1", "mse": "k2", "low_var_kl": "k3", "kl+": "k1+", "mse+": "k2+", "low_var_kl+": "k3+"}


def coefficients(mode: str, keep: Tensor, seq: Tensor, n: int, length: float, counted: Tensor | None = None) -> Tensor:
    """(N,) what each token of the optimizer batch is multiplied with; 0 where keep is 0.

    keep (N,) bool: tokens that train. counted (N,) bool: tokens that the denominators count (default keep; all of
    them when rejection must not inflate the gradient). n: sequences in the optimizer batch, empty ones included.
    length: the constant of the -norm modes.
    """
    counted = keep if counted is None else counted
    dtype = torch.float64
    per_seq = seg_sum(counted.to(dtype), seq, n)  # to pick entries would wait for the device
    present = (per_seq > 0).sum().clamp(min=1).to(dtype)
    tokens = per_seq.sum().clamp(min=1)
    if mode == "token-mean":
        c = torch.ones_like(seq, dtype=dtype) / tokens
    elif mode == "seq-mean-token-sum":
        c = torch.ones_like(seq, dtype=dtype) / present
    elif mode == "seq-mean-token-mean":
        c = 1 / ((per_seq[seq] + 1e-8) * present)
    elif mode == "seq-mean-token-sum-norm":
        c = torch.ones_like(seq, dtype=dtype) / (present * length)
    elif mode == "batch-mean-token-mean":
        c = 1 / (per_seq[seq].clamp(min=1) * n)
    elif mode == "batch-mean-token-sum":
        c = torch.ones_like(seq, dtype=dtype) / n
    elif mode == "batch-sum-norm":
        c = torch.ones_like(seq, dtype=dtype) / (n * length)
    else:
        raise ValueError(f"aggregation {mode!r} is unknown; expected one of {', '.join(AGGREGATIONS)}")
    return torch.where(keep, c, torch.zeros_like(c))


def sequence_coefficients(keep: Tensor, counted: Tensor, seq: Tensor, n: int) -> Tensor:
    """(N,) coefficients that make a per-sequence loss (the same on all its tokens) count once, averaged over n."""
    per_seq = seg_count(seq[keep], n, torch.float64)
    c = 1 / (per_seq[seq].clamp(min=1) * n)
    return torch.where(keep, c, torch.zeros_like(c))


def token_coefficients(keep: Tensor, counted: Tensor, seq: Tensor, n: int) -> Tensor:
    """(N,) 1 / (counted tokens + 1e-8): the mean over tokens as the advantage-weighted cross entropy is published."""
    return torch.where(keep, 1 / (counted.sum().double() + 1e-8), 0.0)


def kl(lp: Tensor, ref: Tensor, estimator: str) -> Tensor:
    """(N,) estimate of KL(policy || reference). A trailing `+` keeps the value and takes k2's gradient, whose
    expectation is the gradient of the KL; that of k1 and k3 is not."""
    base = estimator.rstrip("+")
    d = lp - ref
    if base == "k1":
        value = d
    elif base == "abs":
        value = d.abs()
    elif base == "k2":
        value = 0.5 * d * d
    elif base == "k3":
        x = (-d).clamp(-20, 20)
        value = (torch.exp(x) - x - 1).clamp(-10, 10)
    else:
        raise ValueError(f"KL estimator {estimator!r} is unknown; expected one of {', '.join(KL_ESTIMATORS)}")
    if not estimator.endswith("+") or base == "k2":
        return value
    through = 0.5 * d * d
    return through - through.detach() + value.detach()


def covariance(adv: Tensor, lp: Tensor) -> Tensor:
    """(N,) each token's part of the covariance between advantage and log-probability over the optimizer batch."""
    lp = lp.detach()
    return (adv - adv.mean()) * (lp - lp.mean())


def select_clip_cov(
    adv: Tensor, lp: Tensor, old: Tensor, clip: tuple[float, float], ratio: float, low: float, high: float,
    generator: torch.Generator,
) -> Tensor:  # fmt: skip
    """(N,) bool: a random `ratio` of the batch's tokens (at least one) with covariance in (low, high) that the
    ordinary clip does not already stop."""
    r = torch.exp(lp - old)
    stopped = (-adv * r.clamp(1 - clip[0], 1 + clip[1])) > (-adv * r)
    cov = covariance(adv, lp)
    candidates = torch.nonzero((cov > low) & (cov < high) & ~stopped).flatten()
    count = min(max(int(ratio * len(adv)), 1), len(candidates))
    order = torch.randperm(len(candidates), generator=generator).to(candidates.device)
    picked = torch.zeros_like(adv, dtype=torch.bool)
    picked[candidates[order[:count]]] = True
    return picked


def select_kl_cov(adv: Tensor, lp: Tensor, ratio: float) -> Tensor:
    """(N,) bool: the `ratio` of the batch's tokens (at least one) with the largest covariance."""
    picked = torch.zeros_like(adv, dtype=torch.bool)
    if len(adv):
        picked[torch.topk(covariance(adv, lp), max(1, int(len(adv) * ratio))).indices] = True
    return picked


def select_top_entropy(entropy: Tensor, keep: Tensor, fraction: float) -> Tensor:
    """(N,) bool: tokens whose entropy is at least the (1 - fraction) quantile of the kept tokens of all ranks."""
    if fraction >= 1 or not bool(keep.any()):
        return keep
    kept = entropy[keep].double().sort().values
    position = (1 - fraction) * (len(kept) - 1)
    low = int(position)
    threshold = kept[low] + (kept[min(low + 1, len(kept) - 1)] - kept[low]) * (position - low)
    return keep & (entropy.double() >= threshold)
