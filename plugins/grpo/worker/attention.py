"""Attention over packed rows: each token sees only its own sequence's past."""

from __future__ import annotations

import importlib.util
from collections import Counter
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor

from .batch import Row

aten = torch.ops.aten
VARLEN, EVEN = 2, 3  # kernels; torch.compile makes 0 and 1 constants, and compiles again for each


@torch.library.custom_op("recipe::packed_attention", mutates_args=())
def packed_attention(
    q: Tensor, k: Tensor, v: Tensor, bounds: Tensor, longest: int, kernel: int, scale: float, window: int
) -> tuple[Tensor, Tensor]:
    """Causal attention inside each sequence of a packed row: output (T, heads, D), and the logsumexp (heads * T,) of
    the scores, which the backward pass needs.

    q (T, heads, D); k, v (T, fewer heads, D); bounds (sequences + 1,) int32, cumulative lengths; longest: length of the
    longest; kernel: VARLEN, or EVEN where all are that long; window: tokens that each sees, 0 = all. Compiled code does
    not look inside, so that one compilation serves both kernels."""
    if not q.is_cuda:
        return _plain(q, k, v, bounds, scale, window)
    if kernel == EVEN and not window:
        out, lse, *_ = aten._scaled_dot_product_cudnn_attention(
            *(_folded(x, longest) for x in (q, k, v)), None, True, 0.0, True, False, scale=scale
        )
        return _flat(out), lse.reshape(-1)
    out, lse, *_ = aten._flash_attention_forward(
        q, k, v, bounds, bounds, longest, longest, 0.0, True, False, scale=scale, window_size_left=window - 1,
        window_size_right=0,
    )  # fmt: skip
    return out, lse.reshape(-1)


@torch.library.custom_op("recipe::packed_attention_backward", mutates_args=())
def packed_attention_backward(
    g: Tensor, q: Tensor, k: Tensor, v: Tensor, out: Tensor, lse: Tensor, bounds: Tensor, longest: int, kernel: int,
    scale: float, window: int,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """Gradients of q, k and v, of the same arguments."""
    g, heads = g.contiguous(), q.shape[1]
    if not q.is_cuda:
        return _plain_backward(g, q, k, v, bounds, scale, window)
    if kernel == EVEN and not window:
        seed = torch.empty((), dtype=torch.int64, device=q.device)  # of dropout, which there is none of
        dq, dk, dv = aten._scaled_dot_product_cudnn_attention_backward(
            *(_folded(x, longest) for x in (g, q, k, v, out)), lse.view(-1, heads, longest, 1), seed, seed, None, None,
            None, longest, longest, 0.0, True, scale=scale,
        )  # fmt: skip
        return _flat(dq), _flat(dk), _flat(dv)
    seed = torch.empty(2, dtype=torch.uint64, device=q.device)
    dq, dk, dv = aten._flash_attention_backward(
        g, q, k, v, out, lse.view(heads, -1), bounds, bounds, longest, longest, 0.0, True, seed, seed[:0], scale=scale,
        window_size_left=window - 1, window_size_right=0,
    )  # fmt: skip
    return dq, dk, dv


def _folded(x: Tensor, longest: int) -> Tensor:
    """(T, heads, D) of sequences of one length as (sequences, heads, length, D)."""
    return x.reshape(-1, longest, x.shape[1], x.shape[2]).transpose(1, 2)


def _flat(x: Tensor) -> Tensor:
    """The inverse of _folded."""
    return x.transpose(1, 2).reshape(-1, x.shape[1], x.shape[3])


# Without a GPU: sequence after sequence, by the formulas. What a test of the rest needs.


def _weights(q: Tensor, k: Tensor, scale: float, window: int) -> Tensor:
    """(heads of k, heads of q for each, L, L): how much of each token every token takes, in one sequence."""
    at = torch.arange(len(q))
    seen = at[None] <= at[:, None]
    if window:
        seen &= at[None] > at[:, None] - window
    grouped = q.unflatten(1, (k.shape[1], -1))
    return torch.einsum("ikgd,jkd->kgij", grouped, k).mul(scale).masked_fill(~seen, float("-inf")).softmax(-1)


def _sequences(bounds: Tensor) -> list[slice]:
    ends = bounds.tolist()
    return [slice(first, last) for first, last in pairwise(ends)]


def _plain(q: Tensor, k: Tensor, v: Tensor, bounds: Tensor, scale: float, window: int) -> tuple[Tensor, Tensor]:
    """The output; the logsumexp is left out, because the backward pass starts anew."""
    out = torch.empty_like(q, memory_format=torch.contiguous_format)
    for part in _sequences(bounds):
        p = _weights(q[part], k[part], scale, window)
        out[part] = torch.einsum("kgij,jkd->ikgd", p, v[part]).flatten(1, 2)
    return out, q.new_zeros(q.shape[0] * q.shape[1], dtype=torch.float32)


def _plain_backward(
    g: Tensor, q: Tensor, k: Tensor, v: Tensor, bounds: Tensor, scale: float, window: int
) -> tuple[Tensor, Tensor, Tensor]:
    dq, dk, dv = (torch.empty_like(x, memory_format=torch.contiguous_format) for x in (q, k, v))
    for part in _sequences(bounds):
        p = _weights(q[part], k[part], scale, window)
        up = g[part].unflatten(1, (k.shape[1], -1))
        dv[part] = torch.einsum("kgij,ikgd->jkd", p, up)
        dp = torch.einsum("ikgd,jkd->kgij", up, v[part])
        ds = p * (dp - (dp * p).sum(-1, keepdim=True)) * scale
        dq[part] = torch.einsum("kgij,jkd->ikgd", ds, k[part]).flatten(1, 2)
        dk[part] = torch.einsum("kgij,ikgd->jkd", ds, q[part].unflatten(1, (k.shape[1], -1)))
    return dq, dk, dv


@packed_attention.register_fake
def _(q, k, v, bounds, longest, kernel, scale, window):  # type: ignore[no-untyped-def]
    out = torch.empty_like(q, memory_format=torch.contiguous_format)
    return out, q.new_empty(q.shape[0] * q.shape[1], dtype=torch.float32)


@packed_attention_backward.register_fake
def _(g, q, k, v, out, lse, bounds, longest, kernel, scale, window):  # type: ignore[no-untyped-def]
    return tuple(torch.empty_like(x, memory_format=torch.contiguous_format) for x in (q, k, v))


def _keep(ctx, inputs, output):  # type: ignore[no-untyped-def]
    q, k, v, bounds, *ctx.rest = inputs
    ctx.save_for_backward(q, k, v, *output, bounds)


def _gradients(ctx, g, _):  # type: ignore[no-untyped-def]
    grads = packed_attention_backward(g, *ctx.saved_tensors, *ctx.rest)
    return *grads, None, None, None, None, None


packed_attention.register_autograd(_gradients, setup_context=_keep)


def _varlen(module, query, key, value, attention_mask, scaling=None, dropout=0.0, sliding_window=None, **kwargs):
    """transformers' attention interface over packed_attention; query (1, heads, T, D)."""
    unknown = [n for n in ("softcap", "s_aux") if kwargs.get(n) is not None]
    if unknown:
        raise ValueError(f'attention "varlen" leaves out {" and ".join(unknown)} of this model: use "eager"')
    # under autocast the rotary embedding leaves queries and keys in float32, which the kernels refuse
    q, k, v = (t.transpose(1, 2).squeeze(0).to(value.dtype) for t in (query, key, value))
    scale = q.shape[-1] ** -0.5 if scaling is None else scaling
    out, _ = packed_attention(
        q, k, v, kwargs["cu_seq_lens_q"], kwargs["max_length_q"], kwargs["kernel"], scale, sliding_window or 0
    )
    return out.unsqueeze(0), None


class Kernels:
    """Which kernel a row's attention takes. Where all sequences have one length cuDNN's takes half the time of the one
    for any lengths, but each shape is prepared anew: it is used from a shape's second time on."""

    def __init__(self) -> None:
        self.seen: Counter[tuple[int, int]] = Counter()
        self.even = False  # whether cuDNN's kernel works here

    def check(self, device: torch.device, dtype: torch.dtype, heads: int, kv_heads: int, width: int) -> str:
        """Tries cuDNN's kernel on small numbers, for what is not known of a GPU or a version; why it is not used."""
        if device.type != "cuda" or torch.cuda.get_device_capability(device) < (9, 0):
            return "made for Hopper and later"
        try:
            worst = _difference(device, dtype, heads, kv_heads, width)
        except RuntimeError as e:
            return str(e).splitlines()[0][:200]
        self.even = worst < 0.05
        return "" if self.even else f"its numbers differ by {worst:.3g}"

    def choose(self, row: Row) -> int:
        """The kernel for this row, the same for all layers."""
        n, tokens = len(row.sequences), row.ids.shape[1]
        if not self.even or tokens != n * row.longest or row.longest < 128:
            return VARLEN
        self.seen[n, row.longest] += 1
        return EVEN if self.seen[n, row.longest] > 1 else VARLEN


def _difference(device: torch.device, dtype: torch.dtype, heads: int, kv_heads: int, width: int) -> float:
    """Largest difference of the two kernels' outputs and gradients, for two sequences of 128 random tokens."""
    g = torch.Generator(device=device).manual_seed(0)
    shapes = ((256, heads, width), (256, kv_heads, width), (256, kv_heads, width), (256, heads, width))
    q, k, v, up = (torch.randn(s, generator=g, device=device, dtype=dtype) for s in shapes)
    bounds = torch.tensor([0, 128, 256], dtype=torch.int32, device=device)
    found = []
    for kernel in (VARLEN, EVEN):
        leaves = [x.detach().requires_grad_() for x in (q, k, v)]
        out, _ = packed_attention(*leaves, bounds, 128, kernel, width**-0.5, 0)
        found.append([out, *torch.autograd.grad(out, leaves, up)])
    return max(float((a - b).abs().max() / a.abs().max()) for a, b in zip(*found, strict=True))


def register() -> None:
    """Makes "varlen" known to transformers."""
    from transformers import AttentionInterface

    AttentionInterface.register("varlen", _varlen)


def choose(wanted: str, device: torch.device, dtype: torch.dtype, config: Any) -> tuple[str, str]:
    """(implementation, why) for attention="auto" or a fixed wish, for a model of this transformers configuration.
    Raises ValueError for a wish that would leave out a part of the model's attention."""
    capped = getattr(config, "attn_logit_softcapping", None) is not None
    if wanted != "auto":
        if capped and wanted in ("sdpa", "varlen"):
            raise ValueError(
                f'attention = "{wanted}" leaves out the soft cap of scores that this model has '
                f'(attn_logit_softcapping = {config.attn_logit_softcapping:g}): use "eager", or "flash_attention_2"'
            )
        return wanted, "as configured"
    narrow = dtype in (torch.float16, torch.bfloat16)
    if device.type == "cuda" and narrow and _flash_attention_2(config):
        return "flash_attention_2", "flash-attn is installed"
    if capped:
        return "eager", "block-diagonal mask: torch's kernels leave out the soft cap of scores that this model has"
    if not getattr(_family(config), "_supports_sdpa", True):
        return "eager", "block-diagonal mask: transformers has no other attention for this family"
    if device.type != "cuda":
        return "sdpa", "block-diagonal mask: variable-length kernels need a GPU"
    if not narrow:
        return "sdpa", f"block-diagonal mask: variable-length kernels need 16-bit arithmetic, this is {dtype}"
    if importlib.util.find_spec("torch.nn.attention.varlen"):
        return "varlen", "torch's variable-length kernel"
    return "sdpa", "block-diagonal mask: no variable-length kernel here"


def _family(config: Any) -> type | None:
    """transformers' class for this configuration; None for code that a model's repository brings."""
    from transformers import AutoModelForCausalLM

    known = AutoModelForCausalLM._model_mapping
    return known.get(type(config), None)


def _flash_attention_2(config: Any) -> bool:
    """Whether flash-attn 2 is installed and serves this family, whose sinks it would leave out. Later versions of
    flash-attn have the same name and other functions."""
    from transformers.utils import is_flash_attn_2_available

    family = _family(config)
    only = getattr(family, "_compatible_flash_implementations", None)
    serves = getattr(family, "_supports_flash_attn", True) and (only is None or "flash_attention_2" in only)
    return serves and is_flash_attn_2_available()


def arguments(implementation: str, row: Row, kernel: int = VARLEN) -> dict:
    """What the kernel needs besides position_ids. sdpa and eager get their block-diagonal mask from transformers,
    which sees the restarts in position_ids."""
    if implementation not in ("varlen", "flash_attention_2"):
        return {}
    b = row.boundaries
    out = {"cu_seq_lens_q": b, "cu_seq_lens_k": b, "max_length_q": row.longest, "max_length_k": row.longest}
    return {**out, "kernel": kernel} if implementation == "varlen" else out
