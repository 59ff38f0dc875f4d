"""Layers that keep another form of their weights than a checkpoint has, such as float8, and are made anew from it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch


class Made:
    """One such layer; of a fused one the parts lie below each other in its weight."""

    def __init__(
        self, make: Callable[[torch.Tensor], None], heights: Sequence[int], width: int, dtype: torch.dtype
    ) -> None:
        """make: the engine makes the layer's parameters of its whole weight, of shape (sum(heights), width), in the
        dtype in which the engine would have read it from a checkpoint."""
        self.dtype = dtype
        self._make = make
        self._came: dict[int, torch.Tensor] = {}
        self.parts = [Part(self, i, torch.Size((height, width))) for i, height in enumerate(heights)]

    def numel(self) -> int:
        return sum(p.shape.numel() for p in self.parts)

    def take(self, index: int, tensor: torch.Tensor) -> None:
        self._came[index] = tensor.to(self.dtype)
        if len(self._came) == len(self.parts):
            came = [self._came[i] for i in range(len(self.parts))]
            self._came = {}
            self._make(came[0] if len(came) == 1 else torch.cat(came))


class Part:
    """The place of one tensor of a checkpoint in such a layer."""

    def __init__(self, layer: Made, index: int, shape: torch.Size) -> None:
        self.layer, self.index, self.shape, self.dtype = layer, index, shape, layer.dtype

    def put(self, tensor: torch.Tensor) -> None:
        """The layer is made when its last part has come; until then the caller must not change what it has given."""
        self.layer.take(self.index, tensor)
