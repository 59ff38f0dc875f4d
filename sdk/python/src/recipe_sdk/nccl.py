"""Weights for inference that shares no memory with the trainer: tensors are sent through a process group of two, this
process and one receiver.

A publication makes the same list of tensors as ipc does. Its handles say where to connect, and carry a token: who has
it may ask for a version. Each receiver has a connection, a thread and a group of its own (NCCL between GPUs, gloo
without), so that one which dies or hangs holds up neither the trainer nor another. A group lives as long as its
connection. Groups are built directly, beside the default group: training and vLLM own theirs.

The receiving side is recipe_sdk.receive.connection.
"""

from __future__ import annotations

import contextlib
import functools
import hmac
import json
import os
import secrets
import socket
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import torch
from torch import Tensor

from . import dtypes, ipc, peer, process_group
from .files import Temporary
from .ipc import Agree, Named, Storage, alone
from .process_group import dist

BUCKET = 64 << 20  # bytes that are sent at once; a larger tensor is sent alone
DEADLINE = 60.0  # seconds for a receiver to join, and for each bucket
ADDRESS = "RECIPE_WEIGHTS_ADDRESS"  # where receivers connect, when they are on other machines; default: loopback
LINE = 1 << 16


@dataclass(frozen=True)
class Offer:
    """What can be asked for now."""

    key: str
    version: int
    tensors: tuple[Tensor, ...]
    buckets: tuple[int, ...]


class Sender(ipc.Shared):
    """The tensors that receivers may ask for. Alive as long as the worker."""

    def __init__(self) -> None:
        super().__init__()
        self.offer: Offer | None = None
        self.token = secrets.token_urlsafe(32)
        self.deadline = DEADLINE
        self.listening: _Listener | None = None

    def refresh(
        self, named: Named, device: torch.device, version: int, dtype: str | None, keep: bool,
        storage: Storage | None = None, main: bool = True, agree: Agree = alone,
    ) -> dict[str, Any]:  # fmt: skip
        """As ipc's; a receiver that is still taking the version before is turned away."""
        self.offer = None
        answer = super().refresh(named, device, version, dtype, keep, storage, main, agree)
        if main:
            counts = tuple(self.handles["buckets"])
            self.offer = Offer(self.handles["key"], version, tuple(self.tensors.values()), counts)
        return answer

    def _describe(self, key: str, device: torch.device, places: dict[str, int]) -> dict[str, Any]:
        if self.listening is None:
            self.listening = _Listener(self, device)
        tensors = self.tensors
        return {
            "form": ipc.FORM, "key": key, "kind": "nccl", "host": self.listening.host, "port": self.listening.port,
            "machine": socket.gethostname(), "token": self.token, "backend": self.listening.backend,
            "deadline": self.deadline,
            "buckets": buckets([t.numel() * t.element_size() for t in tensors.values()]),
            "tensors": [{"name": n, "shape": list(t.shape), "dtype": dtypes.name(t.dtype)} for n, t in tensors.items()],
        }  # fmt: skip

    def close(self) -> None:
        """Nobody joins any more, and groups end."""
        self.offer = None
        if self.listening is not None:
            self.listening.close()


def buckets(sizes: list[int]) -> list[int]:
    """How many tensors, in order, are sent together."""
    out: list[int] = []
    full = BUCKET
    for size in sizes:
        if out and full + size <= BUCKET:
            out[-1], full = out[-1] + 1, full + size
        else:
            out.append(1)
            full = size
    return out


class _Listener:
    """Where receivers join: a listening socket, and a store through which groups find each other."""

    def __init__(self, owner: Sender, device: torch.device):
        self.owner, self.device = owner, device
        self.backend = "nccl" if device.type == "cuda" else "gloo"
        self.host = os.environ.get(ADDRESS) or "127.0.0.1"
        family = socket.AF_INET6 if ":" in self.host else socket.AF_INET
        self.listener = socket.create_server((self.host, 0), family=family)
        self.port = self.listener.getsockname()[1]
        self.folder: Temporary | None = None
        if peer.on_loopback(f"//[{self.host}]" if ":" in self.host else f"//{self.host}"):
            # A store on TCP asks for no token and lists its keys: every user could take the place of one side.
            self.folder = Temporary("recipe-weights-")
        else:
            # Torch would listen on every interface; it takes a socket that is bound to ours instead.
            listener = socket.create_server((self.host, 0), family=family)
            self.store_port = listener.getsockname()[1]
            self.store = dist.TCPStore(
                self.host, self.store_port, None, True, timedelta(seconds=owner.deadline), wait_for_workers=False,
                master_listen_fd=listener.detach(),
            )  # fmt: skip
        self.receivers: set[socket.socket] = set()
        threading.Thread(target=self._listen, name="weights", daemon=True).start()

    def _listen(self) -> None:
        while True:
            try:
                receiver, _ = self.listener.accept()
            except OSError:
                if self.listener.fileno() < 0:
                    return  # closed
                time.sleep(0.1)  # too many open files: some are closed soon
                continue
            self.receivers.add(receiver)
            threading.Thread(target=self._serve, args=(receiver,), name="weights-receiver", daemon=True).start()

    def _serve(self, receiver: socket.socket) -> None:
        """One receiver, from its join to its end."""
        group, who = None, ""
        try:
            receiver.settimeout(self.owner.deadline)
            peer.check(receiver)
            line = Lines(receiver)
            hello = line.read()
            prefix = None if hello is None else self._admit(line, hello)
            if hello is None or prefix is None:
                return
            who = str(hello.get("who", ""))
            here, seconds = receiver.getsockname()[0], self.owner.deadline

            def make() -> Any:
                return process_group.make_group(
                    0, self.backend, self.host, self._store(prefix), prefix, here, seconds, self.device
                )

            group = process_group.within(seconds, receiver, "the receiver's part of the group", make)
            receiver.settimeout(None)  # until it asks for a version, or goes
            packer = Packer(self.device)
            while (request := line.read()) is not None:
                self._answer(line, receiver, group, packer, request)
        except (OSError, RuntimeError, ValueError, KeyError, TypeError) as e:
            # The receiver says what went wrong, where somebody waits for it; here it is only gone.
            name = who or "a receiver that has not said who it is"
            print(f"{name} gets no more weights: {type(e).__name__}: {e}", flush=True)
        finally:
            self.receivers.discard(receiver)
            receiver.close()
            process_group.abandon(group)

    def _admit(self, line: Lines, hello: dict[str, Any]) -> str | None:
        """The name of its group in the store for a receiver that may join; else it is told why not."""
        why = ""
        if not hmac.compare_digest(str(hello.get("token", "")).encode(), self.owner.token.encode()):
            why = "the token is not this trainer's"
        elif hello.get("device") != self.device.type:
            why = f"the trainer's weights are on a {self.device.type} device, the receiver's on {hello.get('device')}"
        elif self.device.type == "cuda":
            gpu, version = str(torch.cuda.get_device_properties(self.device).uuid), list(torch.cuda.nccl.version())
            if hello.get("gpu") == gpu:
                why = f"both sides are on GPU {gpu}, and NCCL needs one for each; use transport ipc"
            elif list(hello.get("nccl") or [])[:2] != version[:2]:
                why = f"the trainer has NCCL {version}, the receiver {hello.get('nccl')}; use one version of torch"
        if why:
            line.write({"refused": why})
            return None
        prefix = secrets.token_urlsafe(16)
        line.write({"store": self._store(prefix), "prefix": prefix})
        return prefix

    def _store(self, prefix: str) -> int | str:
        """Where both sides of a group find each other."""
        return str(self.folder.path / prefix) if self.folder else self.store_port

    def _answer(
        self, line: Lines, receiver: socket.socket, group: Any, packer: Packer, request: dict[str, Any]
    ) -> None:  # fmt: skip
        """Sends a version to a receiver that asks for it."""
        offer = self.owner.offer
        if offer is None or (offer.key, offer.version) != (request["key"], request["version"]):
            held = "none" if offer is None else f"version {offer.version}"
            line.write({"refused": f"the trainer offers {held}, wanted is version {request['version']}"})
            return
        line.write({})
        with torch.no_grad(), torch.cuda.stream(packer.stream):
            for bucket in packer.buckets(offer):
                if self.owner.offer is not offer:
                    break
                process_group.finish(
                    functools.partial(group.send, [bucket], 1, 0), self.backend, receiver, self.owner.deadline,
                    "a bucket of weights",
                )  # fmt: skip
        if self.owner.offer is not offer:
            raise process_group.Lost(f"version {offer.version} was followed by another before all of it was sent")
        line.write({"sent": offer.version})

    def close(self) -> None:
        with contextlib.suppress(OSError):  # macOS: it is not connected
            self.listener.shutdown(socket.SHUT_RDWR)  # a close alone leaves a thread that waits, and accepts one more
        self.listener.close()
        for receiver in list(self.receivers):
            with contextlib.suppress(OSError):  # it has gone by itself
                receiver.shutdown(socket.SHUT_RDWR)
        if self.folder is not None:
            self.folder.close()


class Packer:
    """What a receiver's buckets are packed with: a stream, so that training goes on meanwhile, and one bucket that is
    used again and again, so that nothing is asked of memory that a batch in training has been promised."""

    def __init__(self, device: torch.device) -> None:
        self.stream = torch.cuda.Stream(device) if device.type == "cuda" else None
        self.memory = torch.empty(0, dtype=torch.uint8, device=device)

    def buckets(self, offer: Offer) -> Iterator[Tensor]:
        """The bytes of each bucket: each tensor begins at a multiple of ipc.ALIGNMENT. One is good until the next."""
        rest = iter(offer.tensors)
        for count in offer.buckets:
            parts = [next(rest).detach().contiguous().reshape(-1).view(torch.uint8) for _ in range(count)]
            yield parts[0] if count == 1 else self._pack(parts)

    def _pack(self, parts: list[Tensor]) -> Tensor:
        places, size = [], 0
        for part in parts:
            places.append(size)
            size += -(-part.numel() // ipc.ALIGNMENT) * ipc.ALIGNMENT
        if self.memory.numel() < size:
            self.memory = torch.empty(size, dtype=torch.uint8, device=self.memory.device)
        bucket = self.memory[:size]
        for at, part in zip(places, parts, strict=True):
            bucket[at : at + part.numel()].copy_(part, non_blocking=True)
        return bucket


class Lines:
    """Objects as lines of JSON on a socket."""

    def __init__(self, connection: socket.socket):
        self.connection, self.file = connection, connection.makefile("rb")

    def read(self) -> dict[str, Any] | None:
        """The next one; None at the end."""
        text = self.file.readline(LINE)
        if not text.endswith(b"\n"):
            return None
        value = json.loads(text)
        if not isinstance(value, dict):
            raise ValueError("not an object")
        return value

    def write(self, value: dict[str, Any]) -> None:
        """Sends one."""
        self.connection.sendall(json.dumps(value).encode() + b"\n")
