"""Work on the CPU while the device has something to do: what is small and waits for itself must not wait for what is
large.

A step's numbers are known when its last forward pass is; read where they lie, they would be waited for until the
backward pass is over, and the device would then wait for the CPU.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from types import TracebackType
from typing import Any

import torch
from torch import Tensor


class Beside:
    """A second queue of a GPU. Within `with` operations go there, behind the last mark and no more; what follows on the
    usual one comes after them. Elsewhere nothing is different."""

    def __init__(self, device: torch.device):
        self.stream: Any = torch.cuda.Stream(device, priority=-1) if device.type == "cuda" else None
        self.event: Any = None
        self.entered: Any = contextlib.nullcontext()

    def mark(self) -> None:
        """What was begun up to here is needed within."""
        if self.stream is not None:
            self.event = torch.cuda.current_stream(self.stream.device).record_event()

    def __enter__(self) -> None:
        if self.stream is not None:
            self.stream.wait_event(self.event)
            self.entered = torch.cuda.stream(self.stream)
        self.entered.__enter__()

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.entered.__exit__(kind, error, trace)
        if self.stream is not None:
            torch.cuda.current_stream(self.stream.device).wait_stream(self.stream)


def sent(x: Tensor, device: torch.device, dtype: torch.dtype) -> Tensor:
    """x from the host's memory on the device, for which nobody waits."""
    x = x.to(dtype)
    return x.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else x.to(device)


def fetched(x: Tensor) -> Callable[[], float]:
    """Begins to copy a number from its device; what waits for it, and for nothing that is begun later."""
    if x.device.type != "cuda":
        return lambda: float(x)
    here = x.to("cpu", non_blocking=True)  # into pinned memory
    event = torch.cuda.current_stream(x.device).record_event()

    def wait() -> float:
        event.synchronize()
        return float(here)

    return wait
