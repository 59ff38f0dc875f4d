"""Reductions over ragged sequences held as flat vectors.

The worker never pads: the trained tokens of a whole optimizer batch form vectors of length N, and `seq` (N,) names the
sequence (0..S-1) that each token belongs to. Packing, masking and ragged lengths then cannot change a result.
"""

from __future__ import annotations

import torch
from torch import Tensor


def seg_sum(x: Tensor, seq: Tensor, n: int) -> Tensor:
    """(N,) values summed per segment into (n,); empty segments give 0. Differentiable."""
    return x.new_zeros(n).index_add(0, seq, x)


def seg_count(seq: Tensor, n: int, dtype: torch.dtype) -> Tensor:
    """(n,) how many of the N entries each segment has, as `dtype`."""
    return seg_sum(torch.ones_like(seq, dtype=dtype), seq, n)  # bincount would wait for the device


def seg_mean(x: Tensor, seq: Tensor, n: int) -> Tensor:
    """(N,) values averaged per segment into (n,); empty segments give 0. Differentiable."""
    return seg_sum(x, seq, n) / seg_count(seq, n, x.dtype).clamp(min=1)


def seg_max(x: Tensor, seq: Tensor, n: int) -> Tensor:
    """(N,) values' maximum per segment into (n,); empty segments give 0."""
    out = x.new_full((n,), float("-inf")).scatter_reduce(0, seq, x, "amax")
    return torch.where(torch.isinf(out), torch.zeros_like(out), out)


def seg_std(x: Tensor, seq: Tensor, n: int, population: bool = False) -> Tensor:
    """(N,) values' standard deviation per segment into (n,); ddof 1 unless population; 0 where it is undefined."""
    count = seg_count(seq, n, x.dtype)
    centred = x - seg_mean(x, seq, n)[seq]
    denominator = count if population else count - 1
    return (seg_sum(centred * centred, seq, n) / denominator.clamp(min=1)).sqrt()


def seg_first(seq: Tensor, n: int) -> Tensor:
    """(n,) start offset of each segment, for `seq` sorted ascending."""
    count = seg_count(seq, n, torch.long)
    return torch.cumsum(count, 0) - count


def seg_suffix_sum(x: Tensor, seq: Tensor, n: int) -> Tensor:
    """(N,) for each token the sum of its sequence's values from it to the end (`seq` sorted ascending)."""
    running = torch.cumsum(x, 0)
    before = running - x
    first = seg_first(seq, n)
    offset = before[first.clamp(max=max(len(x) - 1, 0))] if len(x) else x.new_zeros(n)
    return seg_sum(x, seq, n)[seq] - (before - offset[seq])


def seg_prefix_sum(x: Tensor, seq: Tensor, n: int) -> Tensor:
    """(N,) for each token the sum of its sequence's values up to and including it (`seq` sorted ascending)."""
    return seg_sum(x, seq, n)[seq] - seg_suffix_sum(x, seq, n) + x


def seg_index(seq: Tensor, n: int) -> Tensor:
    """(N,) each token's ordinal within its own sequence (`seq` sorted ascending)."""
    return torch.arange(len(seq), device=seq.device) - seg_first(seq, n)[seq]
