"""Weights for inference on the same host without files: handles of tensors that stay where they are.

An inference process opens the handles once and copies whenever it is told. On a GPU the handles are CUDA's: plain
weights in the wanted precision are the trainer's own parameters; merged adapters, other precisions, shards, and weights
that must outlast the next step go through buffers of their own, which every publication refreshes in place. Without a
GPU all weights are copied into anonymous shared memory: it has no name in any file system, so a trainer that dies
leaves nothing behind.

recipe_sdk.receive reads the handles; FORM is raised when it changes.
"""

from __future__ import annotations

import base64
import mmap
import os
import uuid
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from . import dtypes
from .dtypes import DTYPES
from .errors import WorkerError

FORM = 1
HEADER, ALIGNMENT = 4096, 64

Named = Callable[[], Iterator[tuple[str, Tensor]]]  # every weight by its name in the checkpoint; a collective
Storage = Callable[[], dict[str, Tensor]]  # parameters whose memory stays where it is
Agree = Callable[[Callable[[], None]], None]  # runs something; every rank raises when it failed on one


def alone(action: Callable[[], None]) -> None:
    """Agree for one process."""
    action()


class Segment:
    """Anonymous memory that processes of one user map through /proc/PID/fd; it goes with the last that holds it."""

    def __init__(self, key: str, size: int):
        self.fd = os.memfd_create(f"recipe-{key}", os.MFD_CLOEXEC)
        os.ftruncate(self.fd, HEADER + size)
        self.bytes = torch.frombuffer(mmap.mmap(self.fd, HEADER + size), dtype=torch.uint8)
        self._version = self.bytes[:8].view(torch.int64)
        self.version = -1

    def close(self) -> None:
        """No further process can open it. Those that have keep what they see."""
        os.close(self.fd)

    @property
    def version(self) -> int:
        """Whose weights lie here; -1 while they are being written."""
        return int(self._version[0])

    @version.setter
    def version(self, value: int) -> None:
        self._version[0] = value

    def tensor(self, at: int, shape: list[int], dtype: torch.dtype) -> Tensor:
        """The tensor that lies at a place behind the header."""
        size = _bytes(shape, dtype)
        return self.bytes[HEADER + at : HEADER + at + size].view(dtype).view(shape)


class Shared:
    """The tensors that inference has been told about. Alive as long as the worker: their storage must not move."""

    def __init__(self) -> None:
        self.tensors: dict[str, Tensor] = {}
        self.own: set[str] = set()  # names whose tensor is a buffer that needs refreshing
        self.setup: tuple[str | None, bool] | None = None  # dtype and keep that the tensors were made for
        self.segment: Segment | None = None
        self.handles: dict[str, Any] = {}

    @torch.no_grad()
    def refresh(
        self, named: Named, device: torch.device, version: int, dtype: str | None, keep: bool,
        storage: Storage | None = None, main: bool = True, agree: Agree = alone,
    ) -> dict[str, Any]:  # fmt: skip
        """Makes the shared tensors equal the current weights; the answer for the supervisor. keep: they must stay so
        until the next publication, though training goes on. storage: parameters that may be shared themselves. main:
        this process holds the tensors; the others only take part in gathering shards, and agree tells them when this
        process could not have the memory."""
        if self.setup != (dtype, keep):
            self._lay_out(named, device, dtype, keep, storage, main, agree)
        if self.segment is not None:
            self.segment.version = -1
        for name, value in named():
            if name in self.own:
                self.tensors[name].copy_(value)
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        if not main:
            return {}
        if self.segment is not None:
            self.segment.version = version
        total = sum(_bytes(t.shape, t.dtype) for t in self.tensors.values())
        kinds = sorted({dtypes.name(t.dtype) for t in self.tensors.values() if t.is_floating_point()})
        return {
            "handles": self.handles, "tensors": len(self.tensors), "bytes": total, "dtype": "+".join(kinds),
            "copied": len(self.own), "kept": len(self.own) == len(self.tensors),
        }  # fmt: skip

    def _lay_out(
        self, named: Named, device: torch.device, dtype: str | None, keep: bool, storage: Storage | None, main: bool,
        agree: Agree,
    ) -> None:  # fmt: skip
        """Chooses a tensor for every weight: a parameter itself, or a buffer."""
        self._let_go()
        lasting = storage is not None and not keep and device.type == "cuda"
        plain = {p.data_ptr() for p in storage().values()} if lasting and storage else set()
        found: list[tuple[str, Tensor | None, list[int], torch.dtype]] = []
        for name, value in named():
            target = DTYPES[dtype] if dtype and value.is_floating_point() else value.dtype
            itself = value.data_ptr() in plain and value.dtype == target
            found.append((name, value if itself else None, list(value.shape), target))
        agree(lambda: self._allocate(device, found) if main else None)
        self.setup = (dtype, keep)  # only now: what could not be had is tried again

    def _let_go(self) -> None:
        self.tensors, self.own, self.setup = {}, set(), None
        if self.segment is not None:
            self.segment.close()
            self.segment = None

    def _allocate(self, device: torch.device, found: list[tuple[str, Tensor | None, list[int], torch.dtype]]) -> None:
        """Memory for what is not shared as it is, and the handles of all."""
        key, places, size = uuid.uuid4().hex, {}, 0
        try:
            for name, itself, shape, dtype in found:
                if itself is None:
                    self.own.add(name)
                if itself is not None:
                    self.tensors[name] = itself
                elif device.type == "cuda":
                    self.tensors[name] = torch.empty(shape, dtype=dtype, device=device)
                else:
                    places[name] = size
                    size += -(-_bytes(shape, dtype) // ALIGNMENT) * ALIGNMENT
            if device.type != "cuda":
                self.segment = Segment(key, size)
                self.tensors = {n: self.segment.tensor(places[n], shape, dtype) for n, _, shape, dtype in found}
            self.handles = self._describe(key, device, places)
        except (OSError, AttributeError, torch.OutOfMemoryError) as e:
            self._let_go()
            wanted = sum(_bytes(shape, dtype) for _, itself, shape, dtype in found if itself is None)
            raise WorkerError(
                f"{wanted >> 20} MiB of {'GPU' if device.type == 'cuda' else 'shared'} memory could not be had: {e}",
                ["Is there as much memory again as the weights take?", "Use transport reload: it goes through files."],
            ) from e

    def _describe(self, key: str, device: torch.device, places: dict[str, int]) -> dict[str, Any]:
        """How inference gets at the tensors; places: where those in the segment lie."""
        if device.type != "cuda":
            assert self.segment is not None  # _allocate has made it
            return _about(key, "memory") | {
                "fd": self.segment.fd, "header": HEADER,
                "tensors": [{"name": n, "at": places[n], "shape": list(t.shape), "dtype": dtypes.name(t.dtype)}
                            for n, t in self.tensors.items()],
            }  # fmt: skip
        from torch.multiprocessing.reductions import reduce_tensor

        gpu = str(torch.cuda.get_device_properties(device).uuid)
        return _about(key, "cuda") | {"gpu": gpu, "tensors": list(_described(self.tensors, reduce_tensor))}


def _described(tensors: dict[str, Tensor], reduce_tensor: Callable[[Tensor], Any]) -> Iterator[dict[str, Any]]:
    """What torch needs to open each tensor, in JSON: handles of CUDA are bytes."""
    for name, tensor in tensors.items():
        (_, size, stride, offset, _, dtype, _, handle, length, start, _, counter, counter_at, event, waits) = (
            reduce_tensor(tensor)[1]
        )
        yield {
            "name": name, "shape": list(size), "stride": list(stride), "offset": offset, "dtype": dtypes.name(dtype),
            "handle": _text(handle), "bytes": length, "start": start, "counter": _text(counter),
            "counter_at": counter_at, "event": _text(event), "event_waits": waits,
        }  # fmt: skip


def _about(key: str, kind: str) -> dict[str, Any]:
    return {"form": FORM, "key": key, "kind": kind, "pid": os.getpid(), "started": started(os.getpid()), "host": host()}


def started(pid: int) -> str:
    """When a process was started, in the kernel's ticks: with it a process id means one process for ever."""
    with open(f"/proc/{pid}/stat") as f:
        return f.read().rpartition(")")[2].split()[19]


def host() -> str:
    """The machine until its next boot, and the container on it: another has other processes and another loopback."""
    with open("/proc/sys/kernel/random/boot_id") as f:
        boot = f.read().strip()
    return " ".join([boot, *(os.readlink(f"/proc/self/ns/{space}") for space in ("pid", "net"))])


def place(device: torch.device) -> str:
    """The memory that a device's tensors lie in, in the words in which inference says what it can reach."""
    if device.type == "cuda":
        return f"gpu:{torch.cuda.get_device_properties(device).uuid}"
    return f"host:{host()}"


def _bytes(shape: Sequence[int], dtype: torch.dtype) -> int:
    return torch.Size(shape).numel() * dtype.itemsize


def _text(value: bytes | None) -> str | None:
    return None if value is None else base64.b64encode(value).decode()
