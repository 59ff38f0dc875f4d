"""AdamW's moments on their way while a batch is trained: they come in during its last backward pass, and those of the
step before go out during its first forward pass.

At both times the device has memory that a step needs at another: what layers keep for the backward pass, and gradients.
So it costs no memory to have all moments there at the step itself, which then does not wait for transfers.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from typing import Any

import torch

from .model import Policy
from .offload import AdamW

SETTINGS = ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF")


class Prefetch:
    """Tells an optimizer whose moments live in the host's memory when there is room for them; nothing, where it cannot
    use it."""

    def __init__(self, policy: Policy, optimizer: Any, room: Callable[[bool], float]):
        """room: bytes that moments may take now, less than 0 where they are in the way; told whether the head is to
        come."""
        self.training = False  # whether a batch is being trained
        self.last = False  # whether its last backward pass is under way
        self.optimizer = optimizer if possible(policy, optimizer) else None
        # whether this process decides how torch takes memory; whether nothing is kept that was taken in the other way
        self.switched = self.active and not any(map(os.environ.get, SETTINGS))
        self.cleared = not self.switched
        if self.optimizer is None:
            return
        optimizer.room = room
        for layer in policy.backbone.layers:
            layer.register_forward_pre_hook(lambda *_: self.layer_begins())
            trained = next((p for p in layer.parameters() if p.requires_grad), None)
            if trained is not None:
                trained.register_post_accumulate_grad_hook(lambda _: self.layer_done())

    @property
    def active(self) -> bool:
        """Whether moments come before a step and go after it, and memory is put together again in other pieces."""
        return self.optimizer is not None

    def layer_begins(self) -> None:
        """A layer's forward pass needs memory, but for a few tokens between two batches."""
        if self.training:
            self.optimizer.make_room()

    def layer_done(self) -> None:
        """A layer's backward pass is under way, and what it has kept will be given back."""
        self.layer_begins()
        if self.last:
            self.optimizer.prefetch()

    @contextlib.contextmanager
    def backward(self, last: bool) -> Iterator[None]:
        """A backward pass. last: before the optimizer's step."""
        if last and self.active:
            self.optimizer.finish()
            self.optimizer.prefetch(head=True)
            self.last = True
        try:
            yield
        finally:
            self.last = False

    @contextlib.contextmanager
    def batch(self) -> Iterator[None]:
        """Training on a batch: what is taken of the device can be put together again in other pieces. Moments would
        otherwise leave none that are large enough for activations. Seen on an H100 with rows of 32,768 tokens: 13 s a
        step instead of 8.0; nine times in five steps torch had to give back all that it kept. Not for longer than a
        batch, because other processes cannot open such memory."""
        if not self.cleared:
            torch.cuda.empty_cache()
            self.cleared = True
        if self.switched:
            expandable(True)
        self.training = True
        try:
            yield
        finally:
            self.training = False
            if self.switched:
                expandable(False)


def possible(policy: Policy, optimizer: Any) -> bool:
    """Whether moments can be on their way while a batch is trained: not where this machine copies them while the CPU
    waits, nor where layers gather their weights, whose gradients appear when all of them do."""
    return isinstance(optimizer, AdamW) and optimizer.pinned and not policy.sharded and recombines()


def recombines() -> bool:
    """Whether torch can put memory of this device together again in other pieces, tried if need be."""
    if given := next(filter(None, map(os.environ.get, SETTINGS)), ""):
        return "expandable_segments:true" in given.lower().replace(" ", "")
    try:
        expandable(True)
        with torch.cuda.stream(torch.cuda.Stream()):  # for which nothing was taken before, in the other way
            x = torch.empty(32 << 20, dtype=torch.uint8, device="cuda")
        at = x.data_ptr()
        return any(s["is_expandable"] for s in torch.cuda.memory_snapshot()
                   if s["address"] <= at < s["address"] + s["total_size"])  # fmt: skip
    except (AttributeError, RuntimeError, KeyError):
        return False
    finally:
        with contextlib.suppress(AttributeError, RuntimeError):
            expandable(False)


def expandable(on: bool) -> None:
    """Whether torch takes further memory of the device by mapping it. Where it is torch has no public name for this."""
    torch._C._accelerator_setAllocatorSettings(f"expandable_segments:{on}")  # type: ignore[attr-defined]
