"""Log-probabilities of given tokens from hidden states, without the logits of a whole row ever existing.

With 150,000 vocabulary entries the logits of 8,192 tokens are 5 GB in float32. The head therefore runs in chunks:
forward keeps one number per token, backward computes the chunk's logits again.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class HeadOptions:
    """How a model family turns hidden states into logits: matmul, scale, then softcap * tanh(x / softcap)."""

    chunk: int = 1024
    scale: float = 1.0
    softcap: float | None = None
    dtype: torch.dtype | None = None  # of the matmul; None = the hidden state's
    entropy: bool = False
    entropy_gradient: bool = False  # off: the entropy is only reported, which spares its backward pass
    squared: bool = False


def _wide(dtype: torch.dtype) -> torch.dtype:
    return torch.float64 if dtype == torch.float64 else torch.float32


def _logits(h: Tensor, w: Tensor, b: Tensor | None, warm: Tensor, o: HeadOptions) -> tuple[Tensor, Tensor | None]:
    """(c, V) logits over temperature in wide precision, and d(logits) / d(matmul) where it is not constant."""
    z = h @ w.t()
    if b is not None:
        z = z + b
    z = z.to(_wide(z.dtype)) * o.scale
    slope = None
    if o.softcap:
        t = torch.tanh(z / o.softcap)
        z, slope = o.softcap * t, 1 - t * t
    return z / warm[:, None], slope


class _Head(torch.autograd.Function):
    @staticmethod
    def forward(ctx, hidden, weight, bias, label, temperature, o):
        dtype = o.dtype or hidden.dtype
        h, w = hidden.to(dtype), weight.to(dtype)
        b = bias.to(dtype) if bias is not None else None
        wide, n = _wide(dtype), len(label)
        warm = temperature.to(wide)
        lp, lse = hidden.new_empty(n, dtype=wide), hidden.new_empty(n, dtype=wide)
        entropy = hidden.new_zeros(n if o.entropy else 0, dtype=wide)
        squared = hidden.new_zeros(n if o.squared else 0, dtype=wide)
        for i in range(0, n, o.chunk):
            part = slice(i, i + o.chunk)
            z, _ = _logits(h[part], w, b, warm[part], o)
            lse[part] = torch.logsumexp(z, -1)
            lp[part] = z.gather(-1, label[part, None]).squeeze(-1) - lse[part]
            if o.entropy:
                entropy[part] = lse[part] - (torch.exp(z - lse[part, None]) * z).sum(-1)
            if o.squared:
                squared[part] = torch.exp(torch.logsumexp(2 * z, -1) - 2 * lse[part])
        ctx.o, ctx.dtype = o, dtype
        ctx.save_for_backward(hidden, weight, bias, label, warm, lse, entropy)
        ctx.mark_non_differentiable(squared)
        return lp, entropy, squared

    @staticmethod
    def backward(ctx, g_lp, g_entropy, _):
        hidden, weight, bias, label, warm, lse, entropy = ctx.saved_tensors
        o, dtype = ctx.o, ctx.dtype
        need_h, need_w, need_b = ctx.needs_input_grad[:3]
        h, w = hidden.to(dtype), weight.to(dtype)
        b = bias.to(dtype) if bias is not None else None
        grad_h = torch.zeros_like(hidden) if need_h else None
        grad_w = torch.zeros_like(weight, dtype=_wide(dtype)) if need_w else None
        grad_b = torch.zeros_like(bias, dtype=_wide(dtype)) if need_b and bias is not None else None
        for i in range(0, len(label), o.chunk):
            part = slice(i, i + o.chunk)
            z, slope = _logits(h[part], w, b, warm[part], o)
            log_p = z - lse[part, None]
            p = torch.exp(log_p)
            d = -p * g_lp[part, None]
            d.scatter_add_(1, label[part, None], g_lp[part, None].to(d.dtype))
            if o.entropy and o.entropy_gradient:
                d -= p * (log_p + entropy[part, None]) * g_entropy[part, None]
            d = d / warm[part, None]
            if slope is not None:
                d = d * slope
            d = (d * o.scale).to(dtype)
            if need_h:
                grad_h[part] = (d @ w).to(hidden.dtype)
            if need_w:
                grad_w += d.t() @ h[part]
            if grad_b is not None:
                grad_b += d.sum(0)
        return (
            grad_h, grad_w.to(weight.dtype) if need_w else None,
            grad_b.to(bias.dtype) if grad_b is not None else None, None, None, None,
        )  # fmt: skip


def token_logprobs(
    hidden: Tensor, weight: Tensor, bias: Tensor | None, label: Tensor, temperature: Tensor, o: HeadOptions
) -> tuple[Tensor, Tensor | None, Tensor | None]:
    """hidden (n, H), weight (V, H), label (n,), temperature (n,) -> log-probability (n,) of each label, entropy (n,)
    and sum of squared probabilities (n,) where asked for. Float32 at least; gradients flow to hidden, weight, bias."""
    lp, entropy, squared = _Head.apply(hidden, weight, bias, label, temperature, o)
    return lp, entropy if o.entropy else None, squared if o.squared else None
