"""A process group of two, a trainer and a receiver of its weights, and what is waited for in it: each wait has a
deadline, and ends when the other side goes away."""

from __future__ import annotations

import os
import select
import socket
import threading
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import torch
import torch.distributed

dist: Any = torch.distributed  # groups that are built directly are no part of its typed surface


class Lost(RuntimeError):
    """The other side went away, or did not do its part in time."""


def make_group(
    rank: int, backend: str, host: str, at: int | str, prefix: str, here: str, seconds: float, device: torch.device
) -> Any:
    """This side of a group of two, in which one byte has gone from rank 0, who sends weights, to rank 1, who receives
    them. at: the port of a store, or the file of one on this machine. here: the address to be reached at."""
    timeout = timedelta(seconds=seconds)
    store = dist.PrefixStore(prefix, store_at(host, at, timeout))
    if backend == "gloo":
        options = dist.ProcessGroupGloo._Options()
        options._timeout = timeout
        options._devices = [dist.ProcessGroupGloo.create_device(hostname=here)]
        group = dist.ProcessGroupGloo(store, rank, 2, options)
    else:
        torch.cuda.set_device(device)
        # Torch's watchdog ends the whole process when a peer dies or is late. Here both have deadlines of their own.
        names = ("TORCH_NCCL_ASYNC_ERROR_HANDLING", "TORCH_NCCL_ENABLE_MONITORING")
        before = {name: os.environ.get(name) for name in names}
        os.environ.update(dict.fromkeys(names, "0"))
        try:
            group = dist.ProcessGroupNCCL(store, rank, 2, timedelta(days=1))
        finally:
            for name in names:
                del os.environ[name]
            os.environ.update({name: value for name, value in before.items() if value is not None})
    byte = torch.zeros(1, dtype=torch.uint8, device=device)
    (group.send([byte], 1, 0) if rank == 0 else group.recv([byte], 0, 0)).wait(timeout)
    return group


def store_at(host: str, at: int | str, timeout: timedelta) -> Any:
    """A client of the store at a port, or a store in a file of this user."""
    if isinstance(at, int):
        return dist.TCPStore(host, at, None, False, timeout)
    if os.stat(os.path.dirname(at)).st_uid not in (0, os.geteuid()):
        raise PermissionError(f"{at} is in a folder of another user")
    store = dist.FileStore(at, 2)
    store.set_timeout(timeout)
    return store


def within(seconds: float, connection: socket.socket, what: str, make: Callable[[], Any]) -> Any:
    """make's result. What it waits for may never come, and cannot be told to stop: then its thread is left behind."""
    done: list[Any] = []

    def work() -> None:
        try:
            done.append((make(), None))
        except BaseException as e:
            done.append((None, e))

    thread = threading.Thread(target=work, name="weights-group", daemon=True)
    thread.start()
    end = time.monotonic() + seconds
    while not done:
        thread.join(0.02)
        if not done and gone(connection):
            raise Lost(f"the other side went away before {what} was there")
        if not done and time.monotonic() > end:
            raise Lost(f"{what} was not there within {seconds:g} s")
    value, error = done[0]
    if error is not None:
        raise Lost(f"{what} could not be made: {error}") from error
    return value


def finish(start: Callable[[], Any], backend: str, connection: socket.socket, seconds: float, what: str) -> None:
    """Starts a transfer and waits until it is over. gloo notices by itself when the other side dies, also if that was
    before the start; NCCL does not."""
    try:
        work = start()
        if backend == "gloo":
            work.wait(timedelta(seconds=seconds))
            return
    except RuntimeError as e:
        raise Lost(f"{what} did not come through: {e}") from e
    end = time.monotonic() + seconds
    while not work.is_completed():
        if gone(connection):
            raise Lost(f"the other side went away during {what}")
        if time.monotonic() > end:
            raise Lost(f"{what} was not over within {seconds:g} s")
        time.sleep(0.0002)
    work.wait()


def gone(connection: socket.socket) -> bool:
    """Whether the other side has closed."""
    try:
        return bool(select.select([connection], [], [], 0)[0]) and not connection.recv(1, socket.MSG_PEEK)
    except (OSError, ValueError):
        return True


def abandon(group: Any) -> None:
    """Ends a group whose other side may be gone. NCCL may take its time, so nobody waits for it."""
    if group is not None and hasattr(group, "abort"):
        threading.Thread(target=_abort, args=(group,), name="weights-abort", daemon=True).start()


def _abort(group: Any) -> None:
    try:
        group.abort()
    except RuntimeError as e:
        print(f"a group of weights could not be ended: {e}", flush=True)
