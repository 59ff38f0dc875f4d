"""AdamW whose moments live in the host's memory. In its step they pass through the device in pieces: while one piece is
used, the next is on its way in and the one before on its way out.

The state is that of torch's AdamW by name, shape and precision, so that checkpoints are the same with and without it;
so are the numbers, which torch's own function calculates.
"""

from __future__ import annotations

import contextlib
import mmap
import sys
import time
import weakref
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.optim.adamw import adamw

from . import host
from .auto import BUFFERS, GIB, PIECE

ALIGNED = 1024  # bytes: each parameter begins at a multiple, where kernels take several numbers at a time
NORESERVE = 0x4000  # MAP_NORESERVE of Linux, which Python names from 3.13 on
MOMENTS = ("exp_avg", "exp_avg_sq")


@dataclass(frozen=True)
class Slice:
    """Elements first to last (exclusive) of a parameter, `at` so many bytes in a piece."""

    parameter: torch.nn.Parameter
    first: int
    last: int
    at: int

    def of(self, piece: Tensor) -> Tensor:
        """Its part of a piece's bytes."""
        width = self.parameter.element_size()
        return piece[self.at : self.at + (self.last - self.first) * width].view(self.parameter.dtype)


@dataclass
class Piece:
    """A range of each moment's bytes in the host's memory, and what lies in it."""

    start: int
    size: int = 0
    slices: list[Slice] = field(default_factory=list)

    def due(self) -> list[Slice]:
        """Those that have a gradient."""
        return [s for s in self.slices if s.parameter.grad is not None]


class AdamW(torch.optim.AdamW):
    """torch's AdamW over one group of parameters (shards of them, where they are DTensors)."""

    def __init__(self, parameters: Iterable[torch.nn.Parameter], *constants: Any, piece: int = PIECE, **named: Any):
        """constants, named: as torch's. piece: bytes of each moment in a piece, a multiple of 4 KiB; BUFFERS pieces are
        on the device at once. Raises OSError when the host refuses the memory."""
        super().__init__(parameters, *constants, **named)
        (group,) = self.param_groups
        for p in group["params"]:
            if not local(p).is_contiguous():
                p.data = p.data.contiguous()
        self.device = local(group["params"][0]).device
        self.starts, self.pieces, size = laid_out(group["params"], piece)
        began, free = time.perf_counter(), host.available()
        self.host = [Memory(size) for _ in MOMENTS]
        self.note = ""  # what a user should know
        if self.device.type == "cuda":
            pinned = all(m.pin(self.pieces, self.device) for m in self.host)
            self.note = (
                f"AdamW's moments live in {len(MOMENTS) * size / GIB:.1f} GiB of the host's memory, of which "
                f"{free / GIB:.1f} GiB were free, "
                + ("pinned" if pinned else "which this machine does not let be pinned, so that copies are slow;")
                + f" in {time.perf_counter() - began:.1f} s"
            )

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """As torch's. Afterwards the moments are in the host's memory, and nothing of it is under way."""
        with torch.enable_grad():
            result = None if closure is None else closure()
        due = [p for p in self.param_groups[0]["params"] if p.grad is not None]
        pieces = [x for x in self.pieces if x.due()]
        size = max((x.size for x in pieces), default=0)
        # All memory is taken before anything is changed: when there is too little, the step can be made again.
        buffers = [torch.empty(len(MOMENTS), size, dtype=torch.uint8, device=self.device)
                   for _ in pieces[:BUFFERS]]  # fmt: skip
        for p in due:
            self.begin(p)
        counted = [[self.state[s.parameter]["step"].clone() for s in x.due()] for x in pieces]
        inward, here, outward = self.streams()
        inward.wait_stream(here)  # which may still use the memory that the buffers were given
        stored: list[Any] = []
        for k, piece in enumerate(pieces):
            buffer = buffers[k % BUFFERS]
            with on(inward):
                if k >= BUFFERS:
                    inward.wait_event(stored[k - BUFFERS])
                self.load(piece, buffer)
                loaded = inward.record_event()
            here.wait_event(loaded)
            self.update(piece, buffer, counted[k])
            updated = here.record_event()
            with on(outward):
                outward.wait_event(updated)
                self.store(piece, buffer)
                stored.append(outward.record_event())
        outward.synchronize()  # so gradients and buffers can go, and the moments can be read
        for p in due:
            self.state[p]["step"] += 1
        return result

    def streams(self) -> tuple[Any, Any, Any]:
        """For copies to the device, arithmetic, and copies from it."""
        if self.device.type != "cuda":
            return Immediate(), Immediate(), Immediate()
        return torch.cuda.Stream(self.device), torch.cuda.current_stream(self.device), torch.cuda.Stream(self.device)

    def load(self, piece: Piece, buffer: Tensor) -> None:
        """A piece of both moments into the buffer."""
        for memory, there in zip(self.host, buffer, strict=True):
            there[: piece.size].copy_(memory.bytes[piece.start : piece.start + piece.size], non_blocking=True)

    def store(self, piece: Piece, buffer: Tensor) -> None:
        """A piece of both moments from the buffer."""
        for memory, there in zip(self.host, buffer, strict=True):
            memory.bytes[piece.start : piece.start + piece.size].copy_(there[: piece.size], non_blocking=True)

    def update(self, piece: Piece, buffer: Tensor, steps: list[Tensor]) -> None:
        """torch's AdamW on what lies in a piece. steps: copies of the steps so far, which it counts up."""
        group, (first, second), slices = self.param_groups[0], buffer, piece.due()
        adamw(
            [local(s.parameter).view(-1)[s.first : s.last] for s in slices],
            [local(s.parameter.grad).reshape(-1)[s.first : s.last] for s in slices],
            [s.of(first) for s in slices], [s.of(second) for s in slices], [], steps,
            foreach=group["foreach"], capturable=group["capturable"], differentiable=group["differentiable"],
            fused=group["fused"], amsgrad=False, beta1=group["betas"][0], beta2=group["betas"][1], lr=group["lr"],
            weight_decay=group["weight_decay"], eps=group["eps"], maximize=group["maximize"],
        )  # fmt: skip

    def begin(self, p: torch.nn.Parameter) -> dict[str, Tensor]:
        """A parameter's state; where it has none yet, zeros."""
        state = self.state[p]
        if not state:
            state["step"] = counter(bool(self.defaults["fused"]), self.device)
            for name, memory in zip(MOMENTS, self.host, strict=True):
                state[name] = like(p, memory.view(self.starts[p], local(p)))
        return state

    @torch.no_grad()
    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """As torch's, but that the moments are copied to where they live."""
        (saved,) = state_dict["param_groups"]
        super().load_state_dict({**state_dict, "state": {}})
        for number, p in zip(saved["params"], self.param_groups[0]["params"], strict=True):
            state, given = self.begin(p), state_dict["state"].get(number)
            if given is None:
                for name in MOMENTS:
                    local(state[name]).zero_()
                del self.state[p]
                continue
            state["step"].copy_(torch.as_tensor(given["step"]))
            for name in MOMENTS:
                local(state[name]).copy_(local(given[name]))


def laid_out(parameters: list[torch.nn.Parameter], piece: int) -> tuple[dict[Any, int], list[Piece], int]:
    """Where each parameter's moment begins, in bytes; the pieces; the length of all."""
    starts, pieces, end = {}, [], 0
    for p in parameters:
        shard = local(p)
        starts[p], first, width = end, 0, shard.element_size()
        while first < shard.numel():
            at = end % piece
            if at == 0:
                pieces.append(Piece(end))
            last = min(first + (piece - at) // width, shard.numel())
            pieces[-1].slices.append(Slice(p, first, last, at))
            end += -(-(last - first) * width // ALIGNED) * ALIGNED
            pieces[-1].size = end - pieces[-1].start
            first = last
    return starts, pieces, end


class Memory:
    """Zeros in the host's memory, which take none before they are written or pinned. torch's own pinned memory comes in
    powers of two: up to twice of what is asked for."""

    def __init__(self, size: int):
        # not reserved: a virtual machine may be given its memory while it is used
        flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | (NORESERVE if sys.platform == "linux" else 0)
        self.map = mmap.mmap(-1, max(size, 1), flags=flags)
        # large pages are pinned sooner; pinned pages must not be copied for a child process
        for advice in ("MADV_HUGEPAGE", "MADV_DONTFORK"):
            with contextlib.suppress(OSError, AttributeError):
                self.map.madvise(getattr(mmap, advice))
        self.bytes = torch.frombuffer(self.map, dtype=torch.uint8)

    def view(self, at: int, shard: Tensor) -> Tensor:
        """A tensor like the shard, `at` so many bytes, with a storage of its own: torch.save writes storages."""
        if not shard.numel():
            return torch.empty(shard.shape, dtype=shard.dtype)
        return torch.frombuffer(self.map, dtype=shard.dtype, count=shard.numel(), offset=at).view(shard.shape)

    def pin(self, pieces: list[Piece], device: torch.device) -> bool:
        """Lets the device read and write it directly, piece by piece: no copy may cross from one to another. False
        where the machine does not allow it."""
        cudart, start, done = torch.cuda.cudart(), self.bytes.data_ptr(), []
        torch.cuda.synchronize(device)
        weakref.finalize(self, _unpin, self.map, done).atexit = False  # a process that ends gives everything back
        for piece in pieces:
            if int(cudart.cudaHostRegister(start + piece.start, piece.size, 1)):
                with contextlib.suppress(RuntimeError):
                    torch.zeros(1, device=device).add_(1)  # takes the error, which the next launch would report
                return False
            done.append(start + piece.start)
        return True


def _unpin(_memory: mmap.mmap, addresses: list[int]) -> None:
    """Holds on to the memory until it is no longer pinned."""
    for address in addresses:
        torch.cuda.cudart().cudaHostUnregister(address)


class Immediate:
    """The stream of a device on which everything is done at once."""

    def wait_stream(self, stream: Any) -> None: ...

    def wait_event(self, event: Any) -> None: ...

    def record_event(self) -> None: ...

    def synchronize(self) -> None: ...


def on(stream: Any) -> contextlib.AbstractContextManager[Any]:
    """What follows is put on the stream."""
    return torch.cuda.stream(stream) if isinstance(stream, torch.cuda.Stream) else contextlib.nullcontext()


def sharded(x: Any) -> bool:
    """Whether each rank holds a part of it."""
    return hasattr(x, "to_local")


def local(x: Any) -> Tensor:
    """This rank's shard, or the tensor itself. Not detached before it is local: DTensor's dispatcher takes its time."""
    found: Tensor = x.to_local() if sharded(x) else x
    return found.detach()


def counter(fused: bool, device: torch.device) -> Tensor:
    """AdamW's count of a parameter's steps, as torch begins it."""
    wide = torch.get_default_dtype() == torch.float64 and not fused
    return torch.zeros((), dtype=torch.float64 if wide else torch.float32, device=device if fused else "cpu")


def like(p: Any, shard: Tensor) -> Tensor:
    """A shard in the host's memory as a part of the same whole as the parameter's."""
    if not hasattr(p, "to_local"):
        return shard
    from torch.distributed.tensor import DTensor

    return DTensor(shard, p._spec, requires_grad=False)  # from_local would move it to the mesh's device
