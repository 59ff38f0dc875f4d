"""Receives a trainer's weights through a process group of two: the trainer and this worker.

plugins/grpo/worker/broadcast.py is the other side. The group is built beside vLLM's own, lives as long as the connection
that it was made through, and is made anew when either has broken. Every wait has a deadline.
"""

import contextlib
import json
import os
import select
import socket
import threading
import time
from datetime import timedelta

ALIGNMENT = 64
LINE = 1 << 16


class Receiver:
    """The connection to one trainer. It is made at the first version that is asked for."""

    def __init__(self, handles, device=None, refused=RuntimeError):
        """handles: as published. device: where tensors are to arrive. refused: what to raise while nothing was touched."""
        import torch

        self.handles, self.refused = handles, refused
        self.device = torch.device(device) if device is not None else torch.device("cpu")
        if self.device.type == "cuda" and self.device.index is None:
            self.device = torch.device("cuda", torch.cuda.current_device())
        self.deadline = float(handles["deadline"])
        self.connection = self.file = self.group = None

    @contextlib.contextmanager
    def begin(self, key, version):
        """The tensors of a version, one after the other in the order of the handles. Refused is raised before the first."""
        self._ask(key, version)
        try:
            yield self._tensors()
            self.connection.settimeout(self.deadline)
            if (self._read() or {}).get("sent") != version:
                raise RuntimeError(f"the trainer did not send all of version {version}, so the model holds a part of it")
        except BaseException:
            self.close()  # what else may be under way is for nobody
            raise

    def close(self):
        """Leaves; the trainer sees that."""
        if self.group is not None and hasattr(self.group, "abort"):
            # NCCL may take its time over a group whose other side is gone, so nobody waits for it.
            threading.Thread(target=_abort, args=(self.group,), name="weights-abort", daemon=True).start()
        if self.connection is not None:
            self.file.close()
            self.connection.close()
        self.connection = self.file = self.group = None

    def _ask(self, key, version):
        if self.connection is not None and _gone(self.connection):
            self.close()
        try:
            if self.group is None:
                self._join()
            self._write({"key": key, "version": version})
            self.connection.settimeout(self.deadline)
            answer = self._read()
        except (OSError, RuntimeError) as e:
            self.close()
            raise self.refused(f"weights cannot be received from the trainer at {self._where()}: {e}") from e
        if answer is None:
            self.close()
            raise self.refused(f"the trainer at {self._where()} closed the connection when it was asked for version {version}")
        if "refused" in answer:
            raise self.refused(answer["refused"])

    def _where(self):
        return f"{self.handles['host']}:{self.handles['port']}"

    def _join(self):
        """Connects, shows the token, and makes this side of the group."""
        import torch

        self.connection = socket.create_connection((self.handles["host"], self.handles["port"]), timeout=self.deadline)
        self.file = self.connection.makefile("rb")
        hello = {"token": self.handles["token"], "device": self.device.type}
        if self.device.type == "cuda":
            hello["gpu"] = str(torch.cuda.get_device_properties(self.device).uuid)
            hello["nccl"] = list(torch.cuda.nccl.version())
        self._write(hello)
        answer = self._read()
        if answer is None or "refused" in answer:
            raise RuntimeError((answer or {}).get("refused", "it closed the connection"))
        here = self.connection.getsockname()[0]
        self.group = self._within(lambda: _group(self.handles, answer, here, self.deadline, self.device))

    def _within(self, make):
        """make's result. What it waits for may never come, and cannot be told to stop: then its thread is left behind."""
        done = []

        def work():
            try:
                done.append((make(), None))
            except BaseException as e:
                done.append((None, e))

        thread = threading.Thread(target=work, name="weights-group", daemon=True)
        thread.start()
        end = time.monotonic() + self.deadline
        while not done:
            thread.join(0.02)
            if not done and _gone(self.connection):
                raise RuntimeError("the trainer went away before the group was made")
            if not done and time.monotonic() > end:
                raise RuntimeError(f"no group was made with the trainer within {self.deadline:g} s")
        value, error = done[0]
        if error is not None:
            raise RuntimeError(f"no group could be made with the trainer: {error}") from error
        return value

    def _tensors(self):
        """Bucket after bucket. Each has memory of its own: a loader may keep a tensor until its layer is complete."""
        import torch

        rest = iter(self.handles["tensors"])
        for count in self.handles["buckets"]:
            places, size = [], 0
            for t in (next(rest) for _ in range(count)):
                dtype = getattr(torch, t["dtype"])
                length = torch.Size(t["shape"]).numel() * dtype.itemsize
                places.append((size, length, dtype, t["shape"]))
                size += length if count == 1 else -(-length // ALIGNMENT) * ALIGNMENT
            bucket = torch.empty(size, dtype=torch.uint8, device=self.device)
            self._finish(self.group.recv([bucket], 0, 0))
            for at, length, dtype, shape in places:
                yield bucket[at : at + length].view(dtype).view(shape)

    def _finish(self, work):
        """Waits until a bucket is there. gloo notices by itself when the other side dies, NCCL does not."""
        if self.handles["backend"] == "gloo":
            work.wait(timedelta(seconds=self.deadline))
            return
        end = time.monotonic() + self.deadline
        while not work.is_completed():
            if _gone(self.connection):
                raise RuntimeError("the trainer went away during a bucket of weights")
            if time.monotonic() > end:
                raise RuntimeError(f"a bucket of weights did not come within {self.deadline:g} s")
            time.sleep(0.0002)
        work.wait()

    def _read(self):
        text = self.file.readline(LINE)
        return json.loads(text) if text.endswith(b"\n") else None

    def _write(self, value):
        self.connection.sendall(json.dumps(value).encode() + b"\n")


def _group(handles, answer, here, seconds, device):
    """This side of the group; one byte has come through it."""
    import torch
    import torch.distributed as dist

    timeout = timedelta(seconds=seconds)
    store = dist.PrefixStore(answer["prefix"], dist.TCPStore(handles["host"], answer["store"], None, False, timeout))
    if handles["backend"] == "gloo":
        options = dist.ProcessGroupGloo._Options()
        options._timeout = timeout
        options._devices = [dist.ProcessGroupGloo.create_device(hostname=here)]
        group = dist.ProcessGroupGloo(store, 1, 2, options)
    else:
        torch.cuda.set_device(device)
        # Torch's watchdog ends the whole process when a peer dies or is late. Here both have deadlines of their own.
        names = ("TORCH_NCCL_ASYNC_ERROR_HANDLING", "TORCH_NCCL_ENABLE_MONITORING")
        before = {name: os.environ.get(name) for name in names}
        os.environ.update(dict.fromkeys(names, "0"))
        try:
            group = dist.ProcessGroupNCCL(store, 1, 2, timedelta(days=1))
        finally:
            for name in names:
                del os.environ[name]
            os.environ.update({name: value for name, value in before.items() if value is not None})
    byte = torch.zeros(1, dtype=torch.uint8, device=device)
    group.recv([byte], 0, 0).wait(timeout)
    return group


def _abort(group):
    with contextlib.suppress(RuntimeError):
        group.abort()


def _gone(connection):
    """Whether the other side has closed."""
    try:
        return bool(select.select([connection], [], [], 0)[0]) and not connection.recv(1, socket.MSG_PEEK)
    except (OSError, ValueError):
        return True
