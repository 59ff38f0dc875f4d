"""Taking turns on a GPU with inference: what training alone needs leaves the device between two steps."""

from __future__ import annotations

from typing import Any

import torch

from . import offload


def vacate(device: torch.device, optimizer: Any) -> None:
    """Gives back what is cached. Gradients and activations are gone by then; with optimizer.offload so are AdamW's
    moments, once they are waited for. The weights stay: inference wants them."""
    offload.rest(optimizer)
    if device.type == "cuda":
        torch.cuda.empty_cache()
