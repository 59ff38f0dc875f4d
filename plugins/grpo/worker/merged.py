"""Adapters that train while they are merged into the weights.

Beside the weights an adapter costs eight more passes over what goes into and comes out of each layer: its product is
written, read and added, forward and backward. Merged, a layer is one product each way with W + scaling B A, and of the
adapter only its two gradients are left. It is also exactly what inference serves: the sum is rounded once, to the
weights' precision, for both. Gradients are those of the sum, so that what rounding hides of a small update is not lost:
A and B keep it in float32.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from recipe_sdk.products import product
from torch import Tensor

from .auto import GIB
from .offload import local

if TYPE_CHECKING:
    from recipe_sdk.ranks import Ranks

    from .lora import Adapted
    from .model import Policy


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


class Merged:
    """Layers whose weight holds the sum, and the weights before training, which it is made of."""

    def __init__(self, layers: list[Adapted], rank: int = 0, world: int = 1):
        """rank, world: of the processes over which the weights are sharded already, by rows."""
        self.layers, self.rank, self.world = layers, rank, world
        self.originals = [local(x.base_layer.weight).clone() for x in layers]
        self.a = [x.lora_A["default"].weight for x in layers]
        self.b = [x.lora_B["default"].weight for x in layers]
        self.scales = [x.scaling["default"] for x in layers]
        for layer, original, a, b in zip(layers, self.originals, self.a, self.b, strict=True):
            for name, p in (("near_a", a), ("near_b", b)):
                layer.register_buffer(name, torch.empty_like(p, dtype=original.dtype), persistent=False)
            layer.merged_adapters = ["default"]  # peft's own word for it
        self.refresh()

    @torch.no_grad()
    def refresh(self) -> None:
        """Makes the weights the sum again: whatever has changed an adapter calls this. Both factors are rounded to the
        weights' precision, as autocast would; the sum is rounded once. No weight is copied in float32, which took 19 ms
        for 28 layers on an H200."""
        torch._foreach_copy_([x.near_a for x in self.layers], self.a)
        torch._foreach_copy_([x.near_b for x in self.layers], torch._foreach_mul(self.b, self.scales))
        for layer, original in zip(self.layers, self.originals, strict=True):
            rows = _rows(layer.near_b, self.rank, self.world)
            torch.addmm(original, rows, layer.near_a, out=local(layer.base_layer.weight))

    @torch.no_grad()
    def undo(self) -> None:
        """Adapters beside the weights before training again, for good."""
        for layer, original in zip(self.layers, self.originals, strict=True):
            local(layer.base_layer.weight).copy_(original)
            layer.merged_adapters = []
            del layer.near_a, layer.near_b
        self.layers, self.originals = [], []

    @contextlib.contextmanager
    def taken_out(self) -> Iterator[None]:
        """The model before training."""
        with torch.no_grad():
            for layer, original in zip(self.layers, self.originals, strict=True):
                local(layer.base_layer.weight).copy_(original)
        try:
            yield
        finally:
            self.refresh()


def _rows(b: Tensor, rank: int, world: int) -> Tensor:
    """Those of a rank, as FSDP2 deals them."""
    parts = torch.chunk(b, world)
    return parts[rank] if rank < len(parts) else b[:0]


def merge(policy: Policy, wanted: bool | None, ranks: Ranks, free: float) -> str:
    """Has the policy, sharded already, calculate with merged adapters from now on; why not, when it does not. wanted:
    as configured, None: where it can be; free: bytes of memory. Raises ModelError when what is wanted cannot be."""
    from .lora import Adapted, ModelError

    layers = [m for m in policy.parts if hasattr(m, "lora_A")]
    if wanted is False or not layers:
        return ""
    others = [m for m in layers if type(m) is not Adapted]
    beside = sum(local(m.base_layer.weight).nbytes for m in layers)
    why = ""
    if others:
        why = "dropout goes between the input and the adapter" if any(
            isinstance(x, torch.nn.Dropout) for m in others for x in m.lora_dropout.values()
        ) else f"a {type(others[0].base_layer).__name__} cannot hold the sum"  # fmt: skip
    elif policy.autocast is not None:
        why = "weights are not in the precision of the arithmetic"
    elif wanted is None:  # shards differ in size, and so does what is free: all ranks do the same
        beside, free = max(ranks.gather((beside, free)), key=lambda x: x[0] / max(x[1], 1.0))
        if beside > free / 2:
            why = f"the weights before training would take {beside / GIB:.1f} of {free / GIB:.1f} GiB that are free"
    if not why:
        policy.merged = Merged(layers, *((ranks.rank, ranks.world) if policy.sharded else ()))
    elif wanted:
        raise ModelError(f"lora.merged = true is not possible: {why}", ["Leave it unset, or set it to false."])
    return why
