"""Linear layers whose products are calculated in float8, at nearly twice the rate of 16 bits (model.float8).

Both factors of a product are rounded to e4m3: four bits of precision, with one scale for each token and one for each
channel of the weights, so that an outlier costs none but its own token or channel precision. "backward" are the
products that carry gradients through the layers, dy W: log-probabilities, and with them every ratio, stay those of
bfloat16, and what is rounded in a token's gradient is averaged over all tokens of a batch. "all" are those of the
forward pass, x W^T, as well; then both passes have the very same rounded weights. Gradients of weights and adapters
stay in 16 bits. (torchao's recipe "rowwise_with_gw_hp" rounds what "all" does.) Weights are rounded anew each time:
nothing is kept of it, and what is trained, published and saved is what it is without.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterable, Iterator
from typing import Any

import torch
import torch.nn.functional as F
from recipe_sdk.products import product
from torch import Tensor, nn

from .factors import factor_gradients

DTYPE = torch.float8_e4m3fn
LARGEST = 448.0  # of DTYPE
SMALLEST = 1e-30  # of a row's largest number, gradients of a large batch included; a row of zeros has a scale, too
ALIGNED = 16  # both sides of a weight must be multiples
ROUTERS = ("gate", "router", "shared_expert_gate")  # as transformers names them


class Linear(nn.Linear):
    """A linear layer by such products, unless `exact`. forward_too: whether that of its forward pass is one."""

    forward_too, exact = False, False

    def forward(self, x: Tensor) -> Tensor:
        """x W^T + bias, in bfloat16."""
        if self.exact:
            return F.linear(x, self.weight, self.bias)
        return _Linear.apply(x.to(torch.bfloat16), self.weight, self.bias, self.forward_too)


class _Linear(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, rounded: bool) -> Tensor:
        y, scales = _forward(x, weight, bias, rounded)
        ctx.save_for_backward(x if weight.requires_grad else None, weight, bias, scales)
        return y

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:
        x, weight, bias, scales = ctx.saved_tensors
        gw = None if x is None else product(_flat(g).t(), _flat(x), weight.dtype)
        gb = None if bias is None else _flat(g).sum(0, dtype=torch.float32).to(bias.dtype)
        return backward(g, weight, scales), gw, gb, None


class _Merged(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, a: Tensor, b: Tensor, near_a: Tensor, near_b: Tensor,
        scale: float, rounded: bool,
    ) -> Tensor:  # fmt: skip
        y, scales = _forward(x, weight, bias, rounded)
        ctx.save_for_backward(x, weight, scales, a, b, near_a, near_b)
        ctx.scale = scale
        return y

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:
        x, weight, scales, *factors = ctx.saved_tensors
        ga, gb = factor_gradients(g, x, *factors, ctx.scale)
        return backward(g, weight, scales), None, None, ga, gb, None, None, None, None


def merged_linear(
    x: Tensor, base: Linear, a: Tensor, b: Tensor, near_a: Tensor, near_b: Tensor, scale: float
) -> Tensor:
    """merged.merged_linear by such products."""
    return _Merged.apply(x, base.weight, base.bias, a, b, near_a, near_b, scale, base.forward_too)


def _forward(x: Tensor, weight: Tensor, bias: Tensor | None, rounded: bool) -> tuple[Tensor, Tensor | None]:
    bias = None if bias is None else bias.to(x.dtype)
    if not rounded:
        return F.linear(x, weight.to(x.dtype), bias), None
    y, scales = forward(x, weight)
    return (y if bias is None else y + bias), scales


def forward(x: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    """x (…, in) by weight (out, in): (…, out) in bfloat16; the scales (out, 1) of the weight's channels."""
    (x8, x_scales), (w8, w_scales) = round_rows(_flat(x), None), round_rows(weight, None)
    return _product(x8, w8, x_scales, w_scales).view(*x.shape[:-1], -1), w_scales


def backward(g: Tensor, weight: Tensor, scales: Tensor | None) -> Tensor:
    """The gradient (…, in) of x, from that of y (…, out). scales: those of the weight's channels, where the forward
    pass has found them. This product sums over the channels, so they go into the other factor."""
    if scales is None:
        _, scales = round_rows(weight, None)
    g8, g_scales = round_rows(_flat(g), scales)
    w8 = round_transposed(weight, scales)
    return _product(g8, w8, g_scales, torch.ones_like(w8[:, :1], dtype=torch.float32)).view(*g.shape[:-1], -1)


def _product(left: Tensor, right: Tensor, left_scales: Tensor, right_scales: Tensor) -> Tensor:
    """left (m, k) by right (n, k), times their scales (m, 1) and (n, 1)."""
    return torch._scaled_mm(
        left, right.t(), scale_a=left_scales, scale_b=right_scales.t(), out_dtype=torch.bfloat16, use_fast_accum=True
    )


# Compiled code does not look inside these two.


@torch.library.custom_op("recipe::round_rows", mutates_args=())
def round_rows(x: Tensor, factor: Tensor | None) -> tuple[Tensor, Tensor]:
    """(n, k) numbers, each row times the factor's k, in float8, and the scale of each row (n, 1). What is not finite
    makes its row so."""
    x = x.contiguous()  # a gradient may lie otherwise; products want rows
    quick, _ = kernels(x.device)
    if quick is not None and x.shape[1] <= quick.LONGEST:
        return quick.rows(x, factor, DTYPE, LARGEST, SMALLEST)
    return _rows(x, factor)


@torch.library.custom_op("recipe::round_transposed", mutates_args=())
def round_transposed(weight: Tensor, scales: Tensor) -> Tensor:
    """What round_rows has made of a weight (n, k), by the scales that it has found, transposed (k, n)."""
    quick, _ = kernels(weight.device)
    return _transposed(weight, scales) if quick is None else quick.transposed(weight, scales, DTYPE)


@functools.cache
def kernels(device: torch.device) -> tuple[Any, str]:
    """What rounds in one pass over memory on a GPU, once it has been seen to; else None, and why not."""
    if device.type != "cuda":
        return None, ""
    x = torch.arange(1, 1537, device=device).view(32, 48) / 7  # in no row so far apart that small ones lose bits
    try:
        from . import float8_kernels as quick

        found, scales = quick.rows(x, None, DTYPE, LARGEST, SMALLEST)
        turned = quick.transposed(x, scales, DTYPE)
    except Exception as e:  # Triton calls a C compiler, the driver and more
        return None, f"{type(e).__name__}: {e}".splitlines()[0][:200]
    if not (torch.equal(turned.t().float(), found.float()) and torch.allclose(found.float() * scales, x, rtol=0.07)):
        return None, "its kernels calculate wrong"
    return quick, ""


def _rows(x: Tensor, factor: Tensor | None) -> tuple[Tensor, Tensor]:
    v = x.float() if factor is None else x.float() * factor.view(1, -1)
    scales = v.abs().amax(1, keepdim=True).clamp_min(SMALLEST) / LARGEST
    return (v * (1.0 / scales)).to(DTYPE), scales


def _transposed(weight: Tensor, scales: Tensor) -> Tensor:
    return (weight.float() * (1.0 / scales)).to(DTYPE).t().contiguous()


@round_rows.register_fake
def _(x, factor):  # type: ignore[no-untyped-def]
    return x.new_empty(x.shape, dtype=DTYPE), x.new_empty(x.shape[0], 1, dtype=torch.float32)


@round_transposed.register_fake
def _(weight, scales):  # type: ignore[no-untyped-def]
    return weight.new_empty(weight.shape[1], weight.shape[0], dtype=DTYPE)


def _flat(x: Tensor) -> Tensor:
    return x.reshape(-1, x.shape[-1])


def install(backbone: nn.Module, which: str) -> tuple[int, int]:
    """Has the linear layers of a policy calculate so: how many do, of how many. Those do not whose rounding would not
    be averaged away: the head, routers of experts, adapters. which: model.float8."""
    linear = [m for name, m in backbone.named_modules() if type(m) in (nn.Linear, Linear) and not _apart(name)]
    fit = [m for m in linear if not (m.in_features % ALIGNED or m.out_features % ALIGNED)]
    for m in fit:
        m.__class__ = Linear
        m.forward_too = which == "all"
    return len(fit), len(linear)


def _apart(name: str) -> bool:
    path = name.split(".")
    return path[-1] in ROUTERS or "lora_A" in path or "lora_B" in path


def refused(device: torch.device) -> str:
    """Why this device cannot; empty: it can."""
    x = torch.ones(ALIGNED, ALIGNED, dtype=torch.bfloat16, device=device)
    try:
        y, _ = forward(x, x)
    except (AttributeError, RuntimeError, NotImplementedError) as e:
        return str(e).splitlines()[0][:200]
    return "" if bool((y == ALIGNED).all()) else "its products are wrong"


@contextlib.contextmanager
def exact(parts: Iterable[nn.Module]) -> Iterator[None]:
    """Layers of a policy, which are among its parts, as without float8. Not for compiled code, which would be compiled
    once more."""
    layers = [m for m in parts if isinstance(m, Linear)]
    for m in layers:
        m.exact = True
    try:
        yield
    finally:
        for m in layers:
            del m.exact
