"""Receives a trainer's weights through a process group of two: the trainer and this process.

recipe_sdk.nccl is the other side. The group is built beside the engine's own, lives as long as the connection that it
was made through, and is made anew when either has broken. Every wait has a deadline.
"""

from __future__ import annotations

import contextlib
import functools
import json
import socket
from collections.abc import Iterator
from typing import Any

import torch

from .. import peer, process_group
from .refused import Refused

ALIGNMENT = 64
LINE = 1 << 16


def who() -> str:
    """This process among those of its server, and its machine."""
    rank = torch.distributed.get_rank() if torch.distributed.is_initialized() else 0
    return f"rank {rank} on {socket.gethostname()}"


class Receiver:
    """The connection to one trainer. It is made at the first version that is asked for."""

    def __init__(self, handles: dict[str, Any], device: torch.device | str | None = None) -> None:
        """handles: as published. device: where tensors are to arrive."""
        self.handles = handles
        self.device = torch.device(device) if device is not None else torch.device("cpu")
        if self.device.type == "cuda" and self.device.index is None:
            self.device = torch.device("cuda", torch.cuda.current_device())
        self.deadline = float(handles["deadline"])
        self.connection: Any = None
        self.file: Any = None
        self.group: Any = None

    @contextlib.contextmanager
    def begin(self, key: str, version: int) -> Iterator[Iterator[torch.Tensor]]:
        """The tensors of a version, one after the other in the order of the handles. Refused comes before the first."""
        self._ask(key, version)
        try:
            yield self._tensors()
            self.connection.settimeout(self.deadline)
            if (self._read() or {}).get("sent") != version:
                raise RuntimeError(
                    f"the trainer did not send all of version {version}, so the model of {who()} holds a part of it"
                )
        except BaseException:
            self.close()  # what else may be under way is for nobody
            raise

    def close(self) -> None:
        """Leaves; the trainer sees that."""
        process_group.abandon(self.group)
        if self.connection is not None:
            self.file.close()
            self.connection.close()
        self.connection = self.file = self.group = None

    def _ask(self, key: str, version: int) -> None:
        if self.connection is not None and process_group.gone(self.connection):
            self.close()
        try:
            if self.group is None:
                self._join()
            self._write({"key": key, "version": version})
            self.connection.settimeout(self.deadline)
            answer = self._read()
        except (OSError, RuntimeError) as e:
            self.close()
            why = f"no answer within {self.deadline:g} s" if isinstance(e, TimeoutError) else str(e)
            raise Refused(f"{who()} cannot receive weights from the trainer at {self._where()}: {why}") from e
        if answer is None:
            self.close()
            raise Refused(
                f"the trainer at {self._where()} closed the connection when {who()} asked for version {version}"
            )
        if "refused" in answer:
            raise Refused(answer["refused"])

    def _where(self) -> str:
        at = f"{self.handles['host']}:{self.handles['port']}"
        return f"{at} ({self.handles['machine']})" if self.handles.get("machine") else at

    def _join(self) -> None:
        """Connects, shows the token, and makes this side of the group."""
        self.connection = socket.create_connection((self.handles["host"], self.handles["port"]), timeout=self.deadline)
        self.file = self.connection.makefile("rb")
        peer.check(self.connection)
        hello: dict[str, Any] = {"token": self.handles["token"], "device": self.device.type, "who": who()}
        if self.device.type == "cuda":
            hello["gpu"] = str(torch.cuda.get_device_properties(self.device).uuid)
            hello["nccl"] = list(torch.cuda.nccl.version())
        self._write(hello)
        answer = self._read()
        if answer is None or "refused" in answer:
            raise RuntimeError((answer or {}).get("refused", "it closed the connection"))
        here = self.connection.getsockname()[0]
        self.group = process_group.within(
            self.deadline, self.connection, "the trainer's part of the group", lambda: self._group(answer, here)
        )

    def _group(self, answer: dict[str, Any], here: str) -> Any:
        """This side of the group."""
        return process_group.make_group(
            1, self.handles["backend"], self.handles["host"], answer["store"], answer["prefix"], here, self.deadline,
            self.device,
        )  # fmt: skip

    def _tensors(self) -> Iterator[torch.Tensor]:
        """Bucket after bucket. Each has memory of its own: a loader may keep a tensor until its layer is complete."""
        rest = iter(self.handles["tensors"])
        for count in self.handles["buckets"]:
            places, size = [], 0
            for t in (next(rest) for _ in range(count)):
                dtype = getattr(torch, t["dtype"])
                length = torch.Size(t["shape"]).numel() * dtype.itemsize
                places.append((size, length, dtype, t["shape"]))
                size += length if count == 1 else -(-length // ALIGNMENT) * ALIGNMENT
            bucket = torch.empty(size, dtype=torch.uint8, device=self.device)
            process_group.finish(
                functools.partial(self.group.recv, [bucket], 0, 0),
                self.handles["backend"],
                self.connection,
                self.deadline,
                f"a bucket of weights, from the trainer at {self._where()} to {who()},",
            )
            for at, length, dtype, shape in places:
                yield bucket[at : at + length].view(dtype).view(shape)

    def _read(self) -> dict[str, Any] | None:
        text = self.file.readline(LINE)
        return json.loads(text) if text.endswith(b"\n") else None

    def _write(self, value: dict[str, Any]) -> None:
        self.connection.sendall(json.dumps(value).encode() + b"\n")
