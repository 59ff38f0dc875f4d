"""Log-probabilities of given tokens from hidden states, without the logits of a whole row ever existing.

With 150,000 vocabulary entries the logits of 8,192 tokens are 5 GB in float32. The head therefore runs in chunks:
forward keeps one number per token, backward computes the chunk's logits again. Where the head itself does not train
(adapters), how a log-probability changes with its hidden state does not depend on the loss: forward calculates that
while it has the logits, and backward has no more to do than to scale it.
"""

from __future__ import annotations

import functools
import importlib.util
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor


@dataclass(frozen=True)
class HeadOptions:
    """How a model family turns hidden states into logits: matmul, scale, then softcap * tanh(x / softcap)."""

    chunk: int = 1024
    scale: float = 1.0
    softcap: float | None = None
    dtype: torch.dtype | None = None  # of the matmul; None = the hidden state's
    compile: bool = False  # fuse the element-wise work on the logits (GPU)
    entropy: bool = False
    entropy_gradient: bool = False  # off: the entropy is only reported, which spares its backward pass
    squared: bool = False


def _wide(dtype: torch.dtype) -> torch.dtype:
    return torch.float64 if dtype == torch.float64 else torch.float32


# A chunk's logits are the largest thing in memory, and going over them is what the head costs besides its matmuls: the
# functions below overwrite them, `product` included, wherever they can.


def _logits(product: Tensor, b: Tensor | None, warm: Tensor, scale: float, softcap: float | None) -> Tensor:
    """(c, V) logits over temperature in wide precision, from hidden @ weight."""
    z = product if b is None else product + b
    z = z.to(_wide(z.dtype))
    if softcap:
        return z.mul_(scale / softcap).tanh_().mul_((softcap / warm)[:, None])
    return z.mul_((scale / warm)[:, None])


def _forward(product, b, label, warm, scale, softcap, entropy, squared):
    """Log-probability, logsumexp, entropy and sum of squares (c,) of one chunk."""
    z = _logits(product, b, warm, scale, softcap)
    top = z.amax(-1)
    e = (z - top[:, None]).exp_()
    total = e.sum(-1)
    lse = top + total.log()
    lp = z.gather(-1, label[:, None]).squeeze(-1) - lse
    s = (e * e).sum(-1) / (total * total) if squared else None
    h = lse - e.mul_(z).sum(-1) / total if entropy else None
    return lp, lse, h, s


def _backward(product, b, label, warm, lse, g_lp, h, g_entropy, scale, softcap):
    """Gradient (c, V) of hidden @ weight (+ bias); h and g_entropy None where the entropy carries none."""
    narrow = product.dtype
    z = _logits(product, b, warm, scale, softcap)
    slope = (z * (warm / softcap)[:, None]).square_().neg_().add_(1) if softcap else None
    log_p = z.sub_(lse[:, None])
    if h is None:
        d = log_p.exp_().mul_(-g_lp[:, None])
    else:
        p = log_p.exp()
        d = log_p.add_(h[:, None]).mul_(g_entropy[:, None]).add_(g_lp[:, None]).mul_(p).neg_()
    at = label[:, None]
    d.scatter_(1, at, d.gather(1, at) + g_lp[:, None])
    if slope is not None:
        d.mul_(slope)
    return d.mul_((scale / warm)[:, None]).to(narrow)


@functools.cache
def _kernels(compiled: bool):
    """The two chunk functions, fused or plain."""
    if not compiled:
        return _forward, _backward
    return torch.compile(_forward), torch.compile(_backward)


def _one_pass(o: HeadOptions, weight: Tensor, bias: Tensor | None) -> Any:
    """The kernels that go over the logits once, where they serve: on a GPU, for heads without a bias or a cap."""
    if not (o.compile and weight.is_cuda and TRITON) or bias is not None or o.softcap or o.squared:
        return None
    from . import head_kernels

    return head_kernels


TRITON = importlib.util.find_spec("triton") is not None


def _any_length(o: HeadOptions, *tensors: Tensor | None) -> tuple[Tensor | None, ...]:
    """The tensors, of which the compiler is told that their length changes. The vocabulary does not: loops over it
    have a known end, and one compilation serves all chunks."""
    for x in tensors if o.compile else ():
        if x is not None:
            torch._dynamo.maybe_mark_dynamic(x, 0)
    return tensors


def _add_product(total: Tensor, a: Tensor, b: Tensor) -> None:
    """total += a @ b, without rounding the product to the precision of a and b where the device can do that."""
    if total.is_cuda and total.dtype == torch.float32 and a.dtype in (torch.bfloat16, torch.float16) and WIDE_PRODUCT:
        torch.addmm(total, a, b, out_dtype=torch.float32, out=total)
    else:
        total += a @ b


WIDE_PRODUCT = hasattr(torch.ops.aten.addmm, "dtype_out")  # from torch 2.8 on


def _early(needed: tuple[bool, ...], o: HeadOptions) -> bool:
    """Whether all that is asked for is the gradient of hidden states, by log-probabilities alone. needed: of hidden,
    weight, bias, … whether it is asked for."""
    return needed[0] and not any(needed[1:3]) and not (o.entropy and o.entropy_gradient)


def _slope(kernels: Any, backward: Any, product: Tensor, b: Tensor | None, given: tuple, o: HeadOptions) -> Tensor:
    """Gradient (c, V) of product; given: label, temperature, logsumexp, and what _backward is given after them."""
    if kernels is not None:
        return kernels.backward(product, given[0], o.scale / given[1], *given[2:])
    return backward(*_any_length(o, product), b, *_any_length(o, *given), o.scale, o.softcap)


class _Head(torch.autograd.Function):
    @staticmethod
    def forward(ctx, hidden, weight, bias, label, temperature, o):
        dtype = o.dtype or hidden.dtype
        h, w = hidden.to(dtype), weight.to(dtype)
        b = bias.to(dtype) if bias is not None else None
        wide, n = _wide(dtype), len(label)
        warm = temperature.to(wide)
        kernels = _one_pass(o, weight, bias) if wide == torch.float32 else None
        forward, backward = _kernels(o.compile and hidden.is_cuda)
        lp, lse = hidden.new_empty(n, dtype=wide), hidden.new_empty(n, dtype=wide)
        entropy = hidden.new_zeros(n if o.entropy else 0, dtype=wide)
        squared = hidden.new_zeros(n if o.squared else 0, dtype=wide)
        by_lp = torch.empty_like(h) if _early(ctx.needs_input_grad, o) else None  # (n, H) d lp / d hidden
        for i in range(0, n, o.chunk):
            part = slice(i, i + o.chunk)
            product = h[part] @ w.t()
            if kernels is not None:
                lp[part], lse[part], e = kernels.forward(product, label[part], o.scale / warm[part])
                s = None
            else:
                kept = product if by_lp is None or product.dtype != wide else product.clone()  # it is overwritten
                lp[part], lse[part], e, s = forward(
                    *_any_length(o, kept), b, *_any_length(o, label[part], warm[part]), o.scale, o.softcap,
                    o.entropy, o.squared,
                )  # fmt: skip
            if o.entropy:
                entropy[part] = e
            if o.squared:
                squared[part] = s
            if by_lp is not None:
                given = (label[part], warm[part], lse[part], torch.ones_like(lse[part]), None, None)
                torch.mm(_slope(kernels, backward, product, b, given, o), w, out=by_lp[part])
        ctx.o, ctx.dtype, ctx.of, ctx.early = o, dtype, hidden.dtype, by_lp is not None
        ctx.save_for_backward(*((by_lp,) if ctx.early else (hidden, weight, bias, label, warm, lse, entropy)))
        ctx.mark_non_differentiable(squared)
        return lp, entropy, squared

    @staticmethod
    def backward(ctx, g_lp, g_entropy, _):
        if ctx.early:
            (by_lp,) = ctx.saved_tensors
            return (by_lp * g_lp[:, None]).to(ctx.of), None, None, None, None, None
        hidden, weight, bias, label, warm, lse, entropy = ctx.saved_tensors
        o, dtype = ctx.o, ctx.dtype
        need_h, need_w, need_b = ctx.needs_input_grad[:3]
        kernels = _one_pass(o, weight, bias) if lse.dtype == torch.float32 else None
        _, backward = _kernels(o.compile and hidden.is_cuda)
        inward = o.entropy and o.entropy_gradient
        h, w = hidden.to(dtype), weight.to(dtype)
        b = bias.to(dtype) if bias is not None else None
        grad_h = torch.zeros_like(hidden) if need_h else None
        grad_w = torch.zeros_like(weight, dtype=_wide(dtype)) if need_w else None
        grad_b = torch.zeros_like(bias, dtype=_wide(dtype)) if need_b and bias is not None else None
        for i in range(0, len(label), o.chunk):
            part = slice(i, i + o.chunk)
            given = (label[part], warm[part], lse[part], g_lp[part], entropy[part] if inward else None,
                     g_entropy[part] if inward else None)  # fmt: skip
            d = _slope(kernels, backward, h[part] @ w.t(), b, given, o)
            if need_h:
                grad_h[part] = d @ w
            if need_w:
                _add_product(grad_w, d.t(), h[part])
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
