"""A forward pass over the same few tokens, time and again, as a CUDA graph.

It has thousands of kernels that take microseconds, so it takes as long as the CPU needs to start them: 0.13 s for 28
layers with adapters where inference uses the same GPU (H200), in which the trainer waits. A graph starts them at once.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from .batch import Row

Forward = Callable[[Row], Tensor]
Capture = Callable[[Callable[[], Tensor]], tuple[Callable[[], None], Tensor]]

LARGEST_GAP = 0.01  # of log-probabilities; a graph's matmuls may choose other algorithms


def record(forward: Callable[[], Tensor]) -> tuple[Callable[[], None], Tensor]:
    """(replay, result): replay computes forward() again, with the current weights, and leaves it in result."""
    graph = torch.cuda.CUDAGraph()
    # When recording fails, torch does not go back to the previous stream by itself.
    with torch.cuda.stream(torch.cuda.current_stream()), torch.cuda.graph(graph, capture_error_mode="thread_local"):
        result = forward()
    return graph.replay, result


class Replay:
    """The log-probabilities of one row. A row is recorded when it comes for the second time, and anew when weights
    have moved in memory; whatever cannot be recorded is computed as usual."""

    def __init__(self, model: nn.Module, device: torch.device, capture: Capture | None):
        """capture: `record`, or None where nothing may be recorded."""
        self.parts, self.device, self.capture = list(model.modules()), device, capture
        self.key: Any = None  # of the row that came last, and of where the weights were
        self.recorded: tuple[Callable[[], None], Tensor, Row] | None = None  # the graph reads the row's memory
        self.refused = ""  # why nothing is recorded any more

    @torch.no_grad()
    def __call__(self, row: Row, forward: Forward) -> Tensor:
        """forward of the row, which it is given on the device. A row that is recorded already stays where it is: to
        move it takes seven copies, for each of which a GPU that inference uses as well is waited for."""
        if self.capture is None:
            return forward(row.to(self.device))
        places = [p.data_ptr() for m in self.parts for p in m._parameters.values() if p is not None]
        key = (row.ids.tolist(), row.temperature.tolist(), places)
        again, self.key = key == self.key, key
        if not again:
            self.recorded = None
        if self.recorded is not None:
            replay, result, _ = self.recorded
            replay()
            return result.clone()
        row = row.to(self.device)
        plain = forward(row)
        if again:
            self._record(row, forward, plain)
        return plain

    def _record(self, row: Row, forward: Forward, plain: Tensor) -> None:
        """Keeps a graph that computes the same."""
        assert self.capture is not None  # __call__ has looked
        try:
            replay, result = self.capture(partial(forward, row))
            replay()
            gap = float((result - plain).abs().max())
            if not gap <= LARGEST_GAP:
                raise RuntimeError(f"its log-probabilities differ by {gap:.3g}")
        except RuntimeError as e:
            self.capture, self.refused = None, str(e).splitlines()[0][:200]
        else:
            self.recorded = replay, result, row
