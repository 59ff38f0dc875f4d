"""Adapters that train while they are merged into the weights.

Beside the weights an adapter costs eight more passes over what goes into and comes out of each layer: its product is
written, read and added, forward and backward. Merged, a layer is one product each way with W + scaling B A, and of the
adapter only its two gradients are left. It is also exactly what inference serves: the sum is rounded once, to the
weights' precision, for both. Gradients are those of the sum, so that what rounding hides of a small update is not lost:
A and B keep it in float32.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from typing import Any

import torch
from recipe_sdk.ranks import Ranks
from torch import Tensor, nn

from .auto import GIB
from .lora import Adapted, ModelError
from .offload import local


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


def merge(
    parts: Iterable[nn.Module], wanted: bool | None, ranks: Ranks, free: float, mixed: bool, sharded: bool
) -> tuple[Merged | None, str]:
    """The adapters among a policy's parts, merged from now on; else why they are not, where there are any.

    wanted: as configured, None: where it can be; free: bytes of memory; mixed: whether the arithmetic is in another
    precision than the weights; sharded: whether ranks have their weights' rows already. Raises ModelError when what is
    wanted cannot be.
    """
    layers: list[Any] = [m for m in parts if hasattr(m, "lora_A")]
    if wanted is False or not layers:
        return None, ""
    others = [m for m in layers if type(m) is not Adapted]
    beside = sum(local(m.base_layer.weight).nbytes for m in layers)
    why = ""
    if others:
        why = "dropout goes between the input and the adapter" if any(
            isinstance(x, nn.Dropout) for m in others for x in m.lora_dropout.values()
        ) else f"a {type(others[0].base_layer).__name__} cannot hold the sum"  # fmt: skip
    elif mixed:
        why = "weights are not in the precision of the arithmetic"
    elif wanted is None:  # shards differ in size, and so does what is free: all ranks do the same
        beside, free = max(ranks.gather((beside, free)), key=lambda x: x[0] / max(x[1], 1.0))
        if beside > free / 2:
            why = f"the weights before training would take {beside / GIB:.1f} of {free / GIB:.1f} GiB that are free"
    if not why:
        return Merged(layers, *((ranks.rank, ranks.world) if sharded else ())), ""
    if wanted:
        raise ModelError(f"lora.merged = true is not possible: {why}", ["Leave it unset, or set it to false."],
                         setting="lora.merged")  # fmt: skip
    return None, why
