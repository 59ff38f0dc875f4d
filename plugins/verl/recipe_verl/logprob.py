"""Log-probabilities from logits where FlashAttention's kernel for them is missing.

verl's own way without it is a loop over the rows of flat logits, with kernels of its own for each token: most of a
step's time.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

ROWS = 2048  # computed at a time: what is in float32 meanwhile is no larger


def install() -> None:
    """Makes verl use it. With flash-attn verl does not call what is replaced here."""
    from verl.utils import torch_functional

    torch_functional.logprobs_from_logits_v2 = logprobs_from_logits


def logprobs_from_logits(logits: Tensor, labels: Tensor) -> Tensor:
    """Of each label under logits [..., V]; float32 at least."""
    found: Tensor = _LogProbs.apply(logits.reshape(-1, logits.shape[-1]), labels.reshape(-1))
    return found.view(labels.shape)


class _LogProbs(torch.autograd.Function):
    """[N] of logits [N, V] and labels [N]. For the backward pass it keeps the logits and N numbers."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor, labels: Tensor) -> Tensor:
        wide = torch.promote_types(logits.dtype, torch.float32)
        norm = torch.cat([part.to(wide).logsumexp(-1) for part in logits.split(ROWS)])
        ctx.save_for_backward(logits, labels, norm)
        return logits.gather(-1, labels[:, None]).squeeze(-1).to(wide) - norm

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        logits, labels, norm = ctx.saved_tensors
        out = torch.empty_like(logits)
        parts = (tensor.split(ROWS) for tensor in (out, logits, labels, norm, gradient))
        for into, x, label, n, g in zip(*parts, strict=True):
            part = (x.to(n.dtype) - n[:, None]).exp_().mul_(-g[:, None])
            into.copy_(part.scatter_add_(-1, label[:, None], g[:, None]))
        return out, None
