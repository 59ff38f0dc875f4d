"""Products of layers whose weight holds an adapter already (merged.Merged), with the gradients of its two factors."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from recipe_sdk.products import product
from torch import Tensor

# Compiled code does not look inside these two, which have no element-wise work to fuse: its graph stays small, and what
# it costs to compile, too.


@torch.library.custom_op("recipe::merged_linear", mutates_args=())
def merged_linear(
    x: Tensor, weight: Tensor, bias: Tensor | None, a: Tensor, b: Tensor, near_a: Tensor, near_b: Tensor, scale: float
) -> Tensor:
    """x (…, in) by weight (out, in), which holds W + scale B A; its gradient goes to a (rank, in) and b (out, rank).
    near_a, near_b: a and scale b as they went into the sum, rounded to its precision."""
    return F.linear(x, weight, bias)


@torch.library.custom_op("recipe::merged_linear_backward", mutates_args=())
def merged_linear_backward(
    g: Tensor, x: Tensor, weight: Tensor, a: Tensor, b: Tensor, near_a: Tensor, near_b: Tensor, scale: float
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of x, a and b; those of a and b in their precision."""
    ga, gb = _factor_gradients(g, x, a, b, near_a, near_b, scale)
    return (g.reshape(-1, g.shape[-1]) @ weight).view(x.shape), ga, gb


@torch.library.custom_op("recipe::factor_gradients", mutates_args=())
def factor_gradients(
    g: Tensor, x: Tensor, a: Tensor, b: Tensor, near_a: Tensor, near_b: Tensor, scale: float
) -> tuple[Tensor, Tensor]:
    """Gradients of a and b alone, for a layer whose own product is calculated otherwise (float8)."""
    return _factor_gradients(g, x, a, b, near_a, near_b, scale)


def _factor_gradients(
    g: Tensor, x: Tensor, a: Tensor, b: Tensor, near_a: Tensor, near_b: Tensor, scale: float
) -> tuple[Tensor, Tensor]:
    g, x = g.reshape(-1, g.shape[-1]), x.reshape(-1, x.shape[-1])
    inner, outer = g @ near_b.to(g.dtype), x @ near_a.to(x.dtype).t()  # (T, rank)
    return product(inner.t(), x, a.dtype), product(g.t(), outer, b.dtype).mul_(scale)


@merged_linear.register_fake
def _(x, weight, bias, a, b, near_a, near_b, scale):  # type: ignore[no-untyped-def]
    return x.new_empty(*x.shape[:-1], weight.shape[0])


@merged_linear_backward.register_fake
def _(g, x, weight, a, b, near_a, near_b, scale):  # type: ignore[no-untyped-def]
    return x.new_empty(x.shape), torch.empty_like(a), torch.empty_like(b)


@factor_gradients.register_fake
def _(g, x, a, b, near_a, near_b, scale):  # type: ignore[no-untyped-def]
    return torch.empty_like(a), torch.empty_like(b)


def _keep(ctx, inputs, output):  # type: ignore[no-untyped-def]
    x, weight, _, *factors, ctx.scale = inputs
    ctx.save_for_backward(x, weight, *factors)


def _gradients(ctx, g):  # type: ignore[no-untyped-def]
    gx, ga, gb = merged_linear_backward(g, *ctx.saved_tensors, ctx.scale)
    return gx, None, None, ga, gb, None, None, None


merged_linear.register_autograd(_gradients, setup_context=_keep)
