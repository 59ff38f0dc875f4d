"""A trainer's published handles, opened: CUDA tensors, shared memory, or a connection that tensors arrive by."""

from __future__ import annotations

import base64
import mmap
import os
import warnings
from typing import Any

import torch

from .connection import Receiver
from .refused import Refused


class Tensors(list[torch.Tensor]):
    """The trainer's tensors; map is the shared memory that holds them, if any. A receiver knows their shapes only."""

    map: mmap.mmap | None = None
    receiver: Any = None


def open_tensors(handles: dict[str, Any], device: torch.device | str | None = None) -> Tensors:
    """The tensors that handles name. Refused says why they cannot be reached."""
    if handles["kind"] == "nccl":
        return _open_socket(handles, device)
    if handles["kind"] == "memory":
        return _open_memory(handles)
    if handles["kind"] == "cuda":
        return _open_cuda(handles)
    raise Refused(f"handles of kind {handles['kind']!r} are unknown")


def _open_socket(handles: dict[str, Any], device: torch.device | str | None) -> Tensors:
    out = Tensors()
    for t in handles["tensors"]:
        out.append(torch.empty(t["shape"], dtype=getattr(torch, t["dtype"]), device="meta"))
    out.receiver = Receiver(handles, device)
    return out


def _open_memory(handles: dict[str, Any]) -> Tensors:
    path = f"/proc/{handles['pid']}/fd/{handles['fd']}"
    try:
        if handles["key"] not in os.readlink(path):
            raise Refused(f"{path} is another file than the trainer's")
        file = os.open(path, os.O_RDONLY)
    except OSError as e:
        raise Refused(f"the trainer's memory cannot be opened: {e}; do both run as one user, in one container?") from e
    try:
        mapped = mmap.mmap(file, 0, access=mmap.ACCESS_READ)
    finally:
        os.close(file)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that it cannot be written to is what we want
        data = torch.frombuffer(mapped, dtype=torch.uint8)
    out = Tensors()
    out.map = mapped
    for t in handles["tensors"]:
        dtype = getattr(torch, t["dtype"])
        at = handles["header"] + t["at"]
        size = torch.Size(t["shape"]).numel() * dtype.itemsize
        out.append(data[at : at + size].view(dtype).view(t["shape"]))
    return out


def _open_cuda(handles: dict[str, Any]) -> Tensors:
    from torch.multiprocessing.reductions import rebuild_cuda_tensor

    if not torch.cuda.is_available():
        raise Refused(f"the trainer's weights lie on GPU {handles['gpu']}, and this server has none")
    seen = visible()
    if handles["gpu"] not in seen:
        raise Refused(
            f"the trainer's weights lie on GPU {handles['gpu']}, which this server does not see; "
            f"it sees {', '.join(seen)}"
        )
    device = seen.index(handles["gpu"])
    out = Tensors()
    for t in handles["tensors"]:
        out.append(
            rebuild_cuda_tensor(
                torch.Tensor, torch.Size(t["shape"]), tuple(t["stride"]), t["offset"], torch.UntypedStorage,
                getattr(torch, t["dtype"]), device, _binary(t["handle"]), t["bytes"], t["start"], False,
                _binary(t["counter"]), t["counter_at"], _binary(t["event"]), t["event_waits"],
            )
        )  # fmt: skip
    return out


def visible() -> list[str]:
    """The GPUs that this process sees."""
    return [str(torch.cuda.get_device_properties(i).uuid) for i in range(torch.cuda.device_count())]


def reach() -> list[str]:
    """The memory that weights can be copied from, in the words of the trainer."""
    return [f"gpu:{u}" for u in visible()] or [f"host:{host()}"]


def machine() -> str:
    """The machine, until it is booted again: weights are sent by nccl within one."""
    return host()


def arithmetic(dtype: torch.dtype) -> str:
    """How exactly this server multiplies: its dtype, float8 of any form; float32 on a GPU uses TensorFloat-32 in
    attention kernels."""
    name = str(dtype).removeprefix("torch.").partition("_")[0]  # float8_e4m3fn
    return "tf32" if name == "float32" and torch.cuda.is_available() else name


def _binary(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text)


def started(pid: int) -> str | None:
    try:
        with open(f"/proc/{pid}/stat") as f:
            return f.read().rpartition(")")[2].split()[19]
    except OSError:
        return None


def host() -> str:
    """The same as ipc.host of the trainer's side."""
    with open("/proc/sys/kernel/random/boot_id") as f:
        boot = f.read().strip()
    return " ".join([boot, *(os.readlink(f"/proc/self/ns/{space}") for space in ("pid", "net"))])
