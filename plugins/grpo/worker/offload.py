"""AdamW whose moments live in the host's memory. In its step they pass through the device in pieces: while one piece is
used, the next is on its way in and the one before on its way out. Where somebody says what `room` there is, pieces come
before the step, while gradients are calculated, and go after it, while the next batch is trained.

The state is that of torch's AdamW by name, shape and precision, so that checkpoints are the same with and without it;
so are the numbers, which torch's own function calculates.
"""

from __future__ import annotations

import contextlib
import mmap
import sys
import time
import weakref
from collections import deque
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
UNDER_WAY = 8  # pieces that are sent to the host before the first of them has arrived
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


@dataclass
class Held:
    """A piece of both moments on the device. ready: when it is there, or up to date. stored: when it is in the host's
    memory again; None: that was not begun."""

    piece: Piece
    buffer: Tensor
    ready: Any
    stored: Any = None


class AdamW(torch.optim.AdamW):
    """torch's AdamW over one group of parameters (shards of them, where they are DTensors)."""

    def __init__(self, parameters: Iterable[torch.nn.Parameter], *constants: Any, piece: int = PIECE, **named: Any):
        """constants, named: as torch's. piece: bytes of each moment in a piece, a multiple of 4 KiB; in a step at least
        BUFFERS pieces are on the device at once. Raises OSError when the host refuses the memory."""
        super().__init__(parameters, *constants, **named)
        (group,) = self.param_groups
        for p in group["params"]:
            if not local(p).is_contiguous():
                p.data = p.data.contiguous()
        self.device = local(group["params"][0]).device
        self.starts, self.pieces, size = laid_out(group["params"], piece)
        self.largest = max((x.size for x in self.pieces), default=0)  # bytes
        began, free = time.perf_counter(), host.available()
        self.host = [Memory(size) for _ in MOMENTS]
        self.note = ""  # what a user should know
        self.pinned = False  # whether copies do not keep the CPU
        self.queues: tuple[Any, ...] = ()
        self.room: Callable[[bool], float] | None = None  # bytes of the device for moments: see prefetch.Prefetch
        self.prefetched: list[Held] = []  # for the next step
        self.going: deque[Held] = deque()  # of the last step
        if self.device.type == "cuda":
            pinned = self.pinned = all(m.pin(self.pieces, self.device) for m in self.host)
            self.note = (
                f"AdamW's moments live in {len(MOMENTS) * size / GIB:.1f} GiB of the host's memory, of which "
                f"{free / GIB:.1f} GiB were free, "
                + ("pinned" if pinned else "which this machine does not let be pinned, so that copies are slow;")
                + f" in {time.perf_counter() - began:.1f} s"
            )

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """As torch's. Afterwards the moments are in the host's memory or, with `room`, on their way there."""
        with torch.enable_grad():
            result = None if closure is None else closure()
        self.finish()
        due = [p for p in self.param_groups[0]["params"] if p.grad is not None]
        pieces = [x for x in self.pieces if x.due()]
        self.drop(pieces)
        # All memory is taken before anything is changed: when there is too little, the step can be made again.
        free = deque(self.buffer() for _ in range(min(BUFFERS, len(pieces)) - len(self.prefetched)))
        steps, counted = self.count(due, pieces)
        inward, here, _ = self.streams()
        inward.wait_stream(here)  # which may still use the memory that the buffers were given
        there, self.prefetched = {id(x.piece): x for x in self.prefetched}, []
        for piece, copies in zip(pieces, counted, strict=True):
            x = there.get(id(piece)) or self.fetch(piece, free.popleft() if free else self.reused())
            here.wait_event(x.ready)
            self.update(piece, x.buffer, copies)
            self.going.append(Held(piece, x.buffer, here.record_event()))
        if steps:
            one = torch.ones_like(steps[0]) if self.left_out is None else 1.0 - self.left_out
            torch._foreach_add_(steps, [one] * len(steps))
        if self.room is None:
            self.finish()
        self.send_until(here.record_event())
        return result

    def fetch(self, piece: Piece, buffer: Tensor) -> Held:
        """Begins to copy a piece to the device."""
        inward, _, _ = self.streams()
        with on(inward):
            self.load(piece, buffer)
            return Held(piece, buffer, inward.record_event())

    def reused(self) -> Tensor:
        """The buffer of the piece that goes first, for another."""
        first, (inward, _, _) = self.going.popleft(), self.streams()
        self.send(first)
        inward.wait_event(first.stored)
        return first.buffer

    def send(self, x: Held) -> None:
        """Begins to copy a piece to the host's memory, unless that was begun."""
        _, _, outward = self.streams()
        if x.stored is None:
            with on(outward):
                outward.wait_event(x.ready)
                self.store(x.piece, x.buffer)
                x.stored = outward.record_event()

    def send_until(self, done: Any) -> None:
        """Sends pieces until then, a few at a time; `make_room` sends the others. All that goes from the device to the
        host goes one after the other: a number that somebody waits for when the step is over would come after all that
        is on its way (half a second for 28 GiB on an H100)."""
        for k, x in enumerate(self.going):
            if done.query():
                return
            if k >= UNDER_WAY:
                self.going[k - UNDER_WAY].stored.synchronize()
            self.send(x)

    @property
    def left_out(self) -> Tensor | None:
        """1 where the next step is to change nothing (see optim.leave_out), else 0; None: nobody has said."""
        return getattr(self, "found_inf", None)

    def count(self, due: list[torch.nn.Parameter], pieces: list[Piece]) -> tuple[list[Tensor], list[list[Tensor]]]:
        """The counts of steps of those that are due, and a copy of them for each slice of each piece."""
        of = {p: self.begin(p)["step"] for p in due}
        copies = iter(torch._foreach_add([of[s.parameter] for x in pieces for s in x.due()], 0.0) if pieces else ())
        return list(of.values()), [[next(copies) for _ in x.due()] for x in pieces]

    @torch.no_grad()
    def prefetch(self, head: bool = False) -> None:
        """Copies the next pieces to the device, for the step to come, as many as there is room for. While a backward
        pass goes through the layers, what they have kept makes that room. head: it has not gone through the head."""
        if self.room is None or self.going:
            return
        inward, here, _ = self.streams()
        inward.wait_stream(here)  # which may still use the memory that was free when it comes to this point
        many = max(0, int(min(self.room(head) / (len(MOMENTS) * self.largest), len(self.pieces))))
        for piece in self.pieces[len(self.prefetched) :][:many]:
            self.prefetched.append(self.fetch(piece, self.buffer()))

    def drop(self, but: Iterable[Piece] = ()) -> None:
        """Forgets what was prefetched, but for these pieces: the moments are what they were."""
        kept, (_, here, _) = {id(x) for x in but}, self.streams()
        for x in self.prefetched:
            if id(x.piece) not in kept:
                here.wait_event(x.ready)  # its memory is used again by what comes after it there
        self.prefetched = [x for x in self.prefetched if id(x.piece) in kept]

    def make_room(self) -> None:
        """Sends what goes, and waits until there is room: something else is about to need memory."""
        for x in self.going:
            self.send(x)
        while self.going and self.room(True) < 0:
            self.going.popleft().stored.synchronize()

    def finish(self) -> None:
        """Waits until the moments of the last step are in the host's memory."""
        for x in self.going:
            self.send(x)
        while self.going:
            self.going.popleft().stored.synchronize()

    def zero_grad(self, set_to_none: bool = True) -> None:
        """As torch's; where a step was to come it does not."""
        self.drop()
        super().zero_grad(set_to_none)

    def state_dict(self) -> dict[str, Any]:
        """As torch's."""
        self.finish()
        return super().state_dict()

    def streams(self) -> tuple[Any, Any, Any]:
        """For copies to the device, arithmetic, and copies from it."""
        if self.device.type != "cuda":
            return Immediate(), Immediate(), Immediate()
        if not self.queues:
            self.queues = torch.cuda.Stream(self.device), torch.cuda.Stream(self.device)
        inward, outward = self.queues
        return inward, torch.cuda.current_stream(self.device), outward

    def buffer(self) -> Tensor:
        """Memory of the device for a piece of both moments."""
        return torch.empty(len(MOMENTS), self.largest, dtype=torch.uint8, device=self.device)

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
            weight_decay=group["weight_decay"], eps=group["eps"], maximize=group["maximize"], found_inf=self.left_out,
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
        self.finish()
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


def rest(optimizer: Any) -> None:
    """Has an optimizer of this kind hold no memory of the device, whatever else it has to wait for or to forget."""
    if isinstance(optimizer, AdamW):
        optimizer.drop()
        optimizer.finish()


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

    def record_event(self) -> Immediate:
        return self

    def synchronize(self) -> None: ...

    def query(self) -> bool:
        return True


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
