"""Taking turns on a GPU with inference: what training alone needs leaves the device between two steps."""

from __future__ import annotations

import torch


def vacate(optimizer: torch.optim.Optimizer, device: torch.device, offload: bool) -> None:
    """Gives back what is cached and, with `offload`, the optimizer's state. The weights stay: inference wants them."""
    if offload:
        _move(optimizer, torch.device("cpu"))
    if device.type == "cuda":
        torch.cuda.empty_cache()


def occupy(optimizer: torch.optim.Optimizer, device: torch.device, offload: bool) -> None:
    """Takes back what vacate moved away."""
    if offload:
        _move(optimizer, device)


@torch.no_grad()
def _move(optimizer: torch.optim.Optimizer, device: torch.device) -> None:
    """Moves moments; the step counter of an optimizer that is not fused lives on the host whatever happens."""
    for parameter, state in optimizer.state.items():
        for name, value in state.items():
            if isinstance(value, torch.Tensor) and value.shape == parameter.shape and value.device.type != device.type:
                state[name] = value.to(device)
