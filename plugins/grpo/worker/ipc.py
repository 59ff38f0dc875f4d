"""Weights for inference on the same host without files: CUDA handles of tensors that stay where they are.

An inference process opens the handles once and copies from them whenever it is told. Plain weights in the wanted
precision are the trainer's own parameters; merged adapters and other precisions go through buffers of their own, which
every publication refreshes in place.
"""

from __future__ import annotations

import base64
import pickle

import torch
from torch import Tensor

from . import weights
from .errors import WorkerError
from .model import DTYPES, Policy


class Shared:
    """The tensors that inference has been told about. Alive as long as the worker: their storage must not move."""

    def __init__(self) -> None:
        self.tensors: dict[str, Tensor] = {}
        self.own: set[str] = set()  # names whose tensor is a buffer that needs refreshing
        self.dtype: str | None = None
        self.blob = ""

    @torch.no_grad()
    def refresh(self, policy: Policy, device: torch.device, dtype: str | None) -> dict:
        """Makes the shared tensors equal the current weights; the answer for the supervisor."""
        if device.type != "cuda":
            raise WorkerError(
                "transport ipc needs a CUDA device, this run trains on the CPU", ["Use transport full or lora."]
            )
        wanted = DTYPES[dtype] if dtype else None
        first = not self.tensors
        if not first and dtype != self.dtype:
            raise WorkerError(f"transport ipc was set up with dtype {self.dtype}, now {dtype} is asked for")
        own = {p.data_ptr() for p in policy.causal.parameters()}
        for name, value in weights.merged(policy):
            target = wanted if wanted is not None and value.is_floating_point() else value.dtype
            if first and value.data_ptr() in own and value.dtype == target:
                self.tensors[name] = value
            elif first:
                self.tensors[name] = value.to(target, copy=True)
                self.own.add(name)
            elif name in self.own:
                self.tensors[name].copy_(value)
        torch.cuda.synchronize(device)
        if first:
            self.dtype, self.blob = dtype, self._handles(device)
        total = sum(t.numel() * t.element_size() for t in self.tensors.values())
        kinds = sorted({str(t.dtype).removeprefix("torch.") for t in self.tensors.values()})
        return {
            "handles": self.blob, "names": list(self.tensors), "tensors": len(self.tensors), "bytes": total,
            "dtype": "+".join(kinds), "device": str(torch.cuda.get_device_properties(device).uuid),
            "copied": len(self.own),
        }  # fmt: skip

    def _handles(self, device: torch.device) -> str:
        from torch.multiprocessing.reductions import reduce_tensor

        uuid = str(torch.cuda.get_device_properties(device).uuid)
        handles = [(uuid, reduce_tensor(t)[1]) for t in self.tensors.values()]
        return base64.b64encode(pickle.dumps({"names": list(self.tensors), "handles": handles})).decode()
