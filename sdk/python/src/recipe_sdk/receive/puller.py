"""Copies a trainer's weights into a served model, from memory that both can reach or as the trainer sends them.

The trainer publishes handles (recipe_sdk.ipc and recipe_sdk.nccl write them). They are opened once; every version after
that is one copy. An engine says itself where the tensors of a checkpoint belong in its model (Fit): then each goes
straight into its place, or all of them go through the engine's own loader.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import Any

import torch

from ..ipc import FORM
from .handles import host, open_tensors, started
from .made import Part
from .refused import Refused

# The place of each tensor in the model and "", or None and why the engine's loader has to place them. It raises Refused
# when names or shapes show that the two models differ.
Fit = Callable[[dict[str, torch.Tensor]], "tuple[list[Any] | None, str]"]
Loader = Callable[[Iterable[tuple[str, torch.Tensor]]], Any]


class Puller:
    """The tensors of one trainer, and where each of them belongs in the model."""

    def __init__(self, handles: dict[str, Any], fit: Fit, device: torch.device | str | None = None) -> None:
        """fit: the engine's word on where each tensor belongs. device: where tensors are received."""
        if handles.get("form") != FORM:
            raise Refused(f"the trainer writes handles of form {handles.get('form')}, this server reads form {FORM}")
        self.handles = handles
        self._alive()
        self.source = open_tensors(handles, device)
        self.names = [t["name"] for t in handles["tensors"]]
        for entry, tensor in zip(handles["tensors"], self.source, strict=True):
            if list(tensor.shape) != entry["shape"]:
                raise Refused(f"{entry['name']} arrived with shape {list(tensor.shape)}, told was {entry['shape']}")
        self.targets, self.why = fit(dict(zip(self.names, self.source, strict=True)))
        self.bytes = sum(t.numel() * t.element_size() for t in self.source)
        self.cuda = handles["kind"] in ("cuda", "nccl") and torch.cuda.is_available()

    def close(self) -> None:
        """Nothing is pulled any more."""
        if self.source.receiver is not None:
            self.source.receiver.close()

    def _alive(self) -> None:
        if self.handles["kind"] == "nccl":
            return  # its connection tells
        pid = self.handles["pid"]
        if host() != self.handles["host"]:
            raise Refused("the trainer runs on another machine, so its memory cannot be reached")
        if started(pid) != self.handles["started"]:
            raise Refused(f"the trainer's process {pid} is gone, and its memory with it")

    def pull(self, version: int, load: Loader) -> dict[str, Any]:
        """Copies the version into the model; load is the engine's loader."""
        begun = time.perf_counter()
        self._alive()
        if (held := self._held(version)) != version:
            raise Refused(f"the trainer's memory holds version {held}, wanted is {version}")
        if self.source.receiver is not None:
            self._receive(version, load)
        elif self.targets is None:
            load(zip(self.names, self.source, strict=True))
        else:
            with torch.no_grad():
                self._copy(self.targets)
        if self.cuda:
            torch.cuda.current_stream().synchronize()  # the trainer goes on when we answer
        if not self._still(version):
            raise RuntimeError(
                f"the trainer went away while version {version} was copied, so the model holds a part of it"
            )
        return {
            "path": "direct" if self.targets is not None else "loader", "why": self.why,
            "tensors": len(self.names), "bytes": self.bytes, "seconds": time.perf_counter() - begun,
        }  # fmt: skip

    def _copy(self, targets: list[Any]) -> None:
        """Puts every tensor into its place; those that stay as they are, at once."""
        copied: tuple[list[torch.Tensor], list[torch.Tensor]] = ([], [])
        for target, source in zip(targets, self.source, strict=True):
            if isinstance(target, Part) or target.device != source.device or target.dtype != source.dtype:
                _put(target, source)
                continue
            copied[0].append(target)
            copied[1].append(source)
        if copied[0]:
            torch._foreach_copy_(*copied, non_blocking=True)

    def _receive(self, version: int, load: Loader) -> None:
        """Takes the tensors as they come; only a bucket of them is in memory besides the model's own."""
        with self.source.receiver.begin(self.handles["key"], version) as tensors:
            if self.targets is None:
                load(zip(self.names, tensors, strict=False))
                for _ in tensors:  # what the loader had no use for
                    pass
                return
            with torch.no_grad():
                for target, tensor in zip(self.targets, tensors, strict=True):
                    _put(target, tensor)

    def _still(self, version: int) -> bool:
        """Whether the trainer was there all the time; one that sends says so itself."""
        if self.source.receiver is not None:
            return True
        return started(self.handles["pid"]) == self.handles["started"] and self._held(version) == version

    def _held(self, version: int) -> int:
        """Whose weights the memory holds. A GPU's does not say: there the check of the sync block has the last word."""
        return version if self.source.map is None else int.from_bytes(self.source.map[:8], "little", signed=True)

    def differences(self) -> int | None:
        """How many parameters are not the trainer's, for tests; None when that is not known."""
        if self.targets is None or self.source.receiver is not None or any(isinstance(t, Part) for t in self.targets):
            return None
        return sum(not torch.equal(s.to(t), t) for t, s in zip(self.targets, self.source, strict=True))


def _put(place: torch.Tensor | Part, tensor: torch.Tensor) -> None:
    if isinstance(place, Part):
        place.put(tensor)
    else:
        place.copy_(tensor, non_blocking=True)
