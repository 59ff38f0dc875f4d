"""The optimizer and its learning-rate schedule."""

from __future__ import annotations

import math
from collections.abc import Iterable

import torch
from recipe_sdk.errors import WorkerError
from torch import Tensor

from . import offload, shards
from .auto import GIB
from .config import Config


def build(c: Config, parameters: Iterable[torch.nn.Parameter]) -> torch.optim.Optimizer:
    """The optimizer over the parameters that train."""
    o = c.optimizer
    trained = [p for p in parameters if p.requires_grad]
    if o.name in ("adafactor", "adamw_8bit") and offload.sharded(trained[0]):
        raise WorkerError(
            f"optimizer.name = {o.name} cannot work on weights that are spread over several GPUs",
            ["Set optimizer.name = adamw, whose moments are spread like the weights.",
             "Or train on one GPU, with adapters (lora.rank) when its memory is short."], setting="optimizer.name",
        )  # fmt: skip
    if o.name == "adamw":
        fused = trained[0].device.type == "cuda"
        constants = (o.learning_rate, (o.beta1, o.beta2), o.epsilon, o.weight_decay)
        if not o.offload:
            kind = shards.AdamW if any(offload.sharded(p) for p in trained) else torch.optim.AdamW
            return kind(trained, *constants, fused=fused or None)
        try:
            return offload.AdamW(trained, *constants, fused=fused or None)
        except OSError as e:
            raise WorkerError(
                f"optimizer.offload: the host refuses {moments(trained) / GIB:.1f} GiB of memory for AdamW's moments: "
                f"{e}",
                ["Give the machine or container more memory, or train on more GPUs: each holds its share.",
                 "Or train adapters (lora.rank), or set optimizer.offload = false where the GPU has the room."],
                setting="optimizer.offload",
            ) from e  # fmt: skip
    if o.name == "adafactor":
        return torch.optim.Adafactor(trained, o.learning_rate, weight_decay=o.weight_decay)
    if o.name == "sgd":
        return torch.optim.SGD(trained, o.learning_rate, weight_decay=o.weight_decay)
    try:
        import bitsandbytes
    except ImportError as e:
        raise ImportError(
            "optimizer.name = adamw_8bit needs the package bitsandbytes: add it to the runtime, or use adamw"
        ) from e
    return bitsandbytes.optim.AdamW8bit(trained, o.learning_rate, (o.beta1, o.beta2), o.epsilon, o.weight_decay)


def leave_out(optimizer: torch.optim.Optimizer, when: Tensor) -> bool:
    """Tells the optimizer to leave its next step out if `when`, a truth value on its device, holds; False when it
    cannot. Nobody need wait for that value then: hundreds of parameters are made ready, for some 6 ms, while the
    device still calculates gradients. torch's fused AdamW can, by what torch.amp.GradScaler sets."""
    if not isinstance(optimizer, torch.optim.AdamW) or not all(group["fused"] for group in optimizer.param_groups):
        return False
    optimizer.found_inf = when.float()  # type: ignore[attr-defined]
    return True


def moments(trained: Iterable[torch.nn.Parameter]) -> int:
    """Bytes of this rank's two moments."""
    return 2 * sum(offload.local(p).numel() * p.element_size() for p in trained)


def learning_rate(c: Config, step: int) -> float:
    """The rate of optimizer step `step` (0 = first). A function of the step alone, so that resume needs no state."""
    o = c.optimizer
    warmup = o.warmup_steps or round(o.warmup_ratio * c.steps)
    if step < warmup:
        return o.learning_rate * (step + 1) / warmup
    if o.schedule == "constant":
        return o.learning_rate
    progress = min((step - warmup) / max(c.steps - warmup, 1), 1.0)
    if o.schedule == "linear":
        share = 1 - progress
    else:
        share = 0.5 * (1 + math.cos(math.pi * progress))
    return o.learning_rate * (o.min_ratio + (1 - o.min_ratio) * share)


def apply(c: Config, optimizer: torch.optim.Optimizer, step: int) -> float:
    """Sets the step's rate and weight decay; returns the rate."""
    rate = learning_rate(c, step)
    for group in optimizer.param_groups:
        group["lr"], group["weight_decay"] = rate, c.optimizer.weight_decay
    return rate
