"""What a trainer registers with `Bridge.attach`. Publications are pulled, also while the trainer waits for a batch, so
weights are reached through functions and not handed over once."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from .groups import Group, ReadOptions
from .ipc import Named, Storage
from .settings import RunSettings

Logprobs = Callable[[Tensor, float], Tensor]
Save = Callable[[Path], None]
Adapter = Callable[[], Iterator[tuple[str, Tensor]]]
Update = Callable[[dict[str, Any]], RunSettings]
Select = Callable[[list[Group]], tuple[list[Group], dict[str, float]]]


@dataclass(frozen=True)
class Hooks:
    """See `Bridge.attach`, which documents each."""

    named: Named
    logprobs: Logprobs
    save: Save
    storage: Storage | None
    adapter: Adapter | None
    update: Update | None
    sleep: Callable[[], None]
    wake: Callable[[], None]
    state: Callable[[], dict[str, Any]]
    config: Callable[[Path], None] | None
    adapter_config: Callable[[Path], None] | None
    tied: Mapping[str, str]
    trained: torch.dtype | None
    reading: Callable[[], ReadOptions]
    select: Select | None
    ahead: bool

    def weights(self, untie: bool = False) -> Iterator[tuple[str, Tensor]]:
        """named, without the names that are other names of the same weight; with untie those are copies."""
        again: dict[str, list[str]] = {}
        for alias, source in self.tied.items():
            again.setdefault(source, []).append(alias)
        for name, value in self.named():
            if name in self.tied:
                continue
            yield name, value
            if untie:
                yield from ((alias, value) for alias in again.get(name, ()))


def nothing() -> None:
    """A hook that was not given."""
