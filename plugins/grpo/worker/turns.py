"""Taking turns on a GPU with inference: what training alone needs leaves the device between two steps."""

from __future__ import annotations

import torch


def vacate(device: torch.device) -> None:
    """Gives back what is cached. Gradients and activations are gone by then, and with optimizer.offload AdamW's moments
    are never there between steps. The weights stay: inference wants them."""
    if device.type == "cuda":
        torch.cuda.empty_cache()
