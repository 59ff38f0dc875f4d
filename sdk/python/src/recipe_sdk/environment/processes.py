"""Runs methods of an environment in processes of their own.

A call in a thread cannot be ended, holds Python's lock while it computes, and has no signals (math-verify's time limit
needs a main thread). Each process makes the environment anew and runs one call at a time in its main thread, outside of
any event loop; one more process runs the coroutines of all calls together. A call that exceeds its time, or whose
process dies, costs that process alone: another takes its place. Processes end with this one, however it ends.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import pickle
import signal
import socket
import struct
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .base import Completion, InfraFailure, Task, TimedOut

STARTUP = 600.0  # seconds in which a process imports the author's code and makes the environment
YIELD = 5.0  # seconds that a coroutine gets to give up after its limit, before its process is ended
LENGTH = struct.Struct("!Q")
MOST = 1 << 32  # bytes of one message


@dataclass(frozen=True)
class Origin:
    """From what a process makes the environment: where its code is, and with what it is opened."""

    source: str
    original: str
    plugin: str
    name: str
    folder: str
    state: str
    settings: dict[str, Any]


class ScoreFailed(Exception):
    """The author's code raised an exception in its process; problem names the line."""

    def __init__(self, problem: dict[str, Any]) -> None:
        super().__init__(problem["message"])
        self.problem = problem


class Died(InfraFailure):
    """A process has ended during a call."""

    _recipe_counted_as = "a process that scores has ended"


class Blocked(Exception):
    """A coroutine kept the event loop, which it shares with others, for itself: their process was ended."""


def default_processes() -> int:
    """As many as this process may use cores, but 4 to 16: many scores wait for something else than a core."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(max(cores, 4), 16)


class Process:
    """One process, and the calls that it owes an answer."""

    def __init__(self, together: bool) -> None:
        ours, theirs = socket.socketpair()
        with theirs:
            try:
                self.popen = subprocess.Popen(
                    [sys.executable, "-m", "recipe_sdk.environment.worker", str(theirs.fileno()), str(int(together)),
                     str(os.getpid())],
                    pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL,
                )  # fmt: skip
            except OSError as e:
                ours.close()
                raise InfraFailure(f"no process that scores can be started: {e}") from e
        self.socket = ours
        self.owed: dict[int, asyncio.Future[Any]] = {}
        self.ready: asyncio.Future[Any]
        self.blamed: Exception | None = None  # why this process was ended by us
        self._numbers = 0

    async def open(self, origin: Origin) -> None:
        """Makes the environment in it; ready is done then."""
        self.ready = asyncio.get_running_loop().create_future()
        reader, self.writer = await asyncio.open_connection(sock=self.socket, limit=1 << 20)
        self._send(origin)
        self.owed[0] = self.ready
        self._reading = asyncio.create_task(self._read(reader))
        if not (await asyncio.wait([self.ready], timeout=STARTUP))[0]:
            self.end(InfraFailure(f"a process that scores was not ready after {STARTUP:.0f} s"))
        await self.ready

    def _send(self, message: Any) -> None:
        data = pickle.dumps(message)
        self.writer.write(LENGTH.pack(len(data)) + data)

    def ask(self, method: str, args: tuple[Any, ...]) -> tuple[int, asyncio.Future[Any]]:
        """Begins a call. An argument that cannot be pickled is the caller's error."""
        self._numbers += 1
        future = asyncio.get_running_loop().create_future()
        if not self.alive:
            raise self.blamed or Died("a process that scores has ended")
        self._send((self._numbers, method, pickle.dumps(args)))
        self.owed[self._numbers] = future
        return self._numbers, future

    def give_up(self, number: int) -> None:
        """Has a coroutine canceled."""
        with contextlib.suppress(OSError):
            self._send((number, None, b""))

    async def _read(self, reader: asyncio.StreamReader) -> None:
        try:
            while True:
                (length,) = LENGTH.unpack(await reader.readexactly(LENGTH.size))
                if length > MOST:
                    raise ConnectionError(f"a message of {length} bytes")
                number, answer = pickle.loads(await reader.readexactly(length))
                future = self.owed.pop(number, None)
                if future is not None and not future.done():
                    future.set_result(answer)
        except (OSError, EOFError, pickle.UnpicklingError):
            pass
        finally:
            self.writer.close()
            why = self.blamed or Died(f"a process that scores has ended: {await self._how()}")
            for future in self.owed.values():
                if not future.done():
                    future.set_exception(why)
                    future.exception()  # its caller may have left
            self.owed.clear()

    async def _how(self) -> str:
        """How it ended. It closes its files a moment before there is a code, and is ended when there is none."""
        for _ in range(500):
            if self.popen.poll() is not None:
                break
            await asyncio.sleep(0.01)
        else:
            self.popen.kill()
            await asyncio.to_thread(self.popen.wait)
        code = self.popen.returncode
        return f"exit code {code}" if code >= 0 else f"signal {-code} ({signal.strsignal(-code)})"

    @property
    def alive(self) -> bool:
        return not self.writer.is_closing() and self.blamed is None

    def end(self, why: Exception) -> None:
        """Ends it with the programs that it has started; why is the answer to what it owes."""
        self.blamed = self.blamed or why
        children = descendants(self.popen.pid)
        self.popen.kill()
        for pid in children:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)

    async def close(self, within: float) -> None:
        """Lets it close the environment, and ends it if that takes too long."""
        self.writer.close()
        for _ in range(int(within / 0.02)):
            if self.popen.poll() is not None:
                break
            await asyncio.sleep(0.02)
        self.end(InfraFailure("the block is stopping"))
        await asyncio.to_thread(self.popen.wait)
        await asyncio.wait([self._reading])


def descendants(pid: int) -> list[int]:
    """The children of a process and theirs, where /proc tells them."""
    parents: dict[int, list[int]] = {}
    for entry in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError, ValueError, IndexError):
            parents.setdefault(int(entry.read_text().rpartition(")")[2].split()[1]), []).append(int(entry.parent.name))
    found, todo = [], [pid]
    while todo:
        children = parents.get(todo.pop(), [])
        found += children
        todo += children
    return found


class Scorers:
    """So many processes, started when they are needed, and one more for coroutines."""

    def __init__(self, origin: Origin, processes: int) -> None:
        self.origin, self.processes = origin, processes
        self.idle: list[Process] = []
        self.all: set[Process] = set()
        self._free = asyncio.Semaphore(processes)
        self._together: asyncio.Task[Process] | None = None

    async def _started(self, together: bool) -> Process:
        made = Process(together)
        self.all = {p for p in self.all if p.popen.poll() is None} | {made}
        try:
            await made.open(self.origin)
        except BaseException:
            made.end(InfraFailure("it could not be started"))
            raise
        return made

    async def call(
        self, method: str, *args: Any, limit: float | None = None, started: Callable[[], None] = lambda: None
    ) -> Any:
        """What a method of the environment returns, which runs alone in a process. TimedOut after limit seconds."""
        async with self._free:
            process = None
            while self.idle and process is None:
                process = self.idle.pop()
                process = process if process.alive else None
            process = process or await self._started(False)
            try:
                _, future = process.ask(method, args)
                started()
                if not (await asyncio.wait([future], timeout=limit or None))[0]:
                    raise TimedOut(limit or 0)
                answer = future.result()
            except (TimedOut, asyncio.CancelledError):
                process.end(InfraFailure("the call was given up"))
                raise
            finally:
                if process.alive:
                    self.idle.append(process)
        return settled(answer)

    async def call_together(self, method: str, *args: Any, limit: float | None = None) -> Any:
        """What a coroutine method returns, which runs with those of other calls in one event loop. Blocked: one of them
        has kept the loop for itself, not necessarily this one."""
        if self._together is None or (self._together.done() and not _usable(self._together)):
            self._together = asyncio.create_task(self._started(True))
        process = await asyncio.shield(self._together)
        number, future = process.ask(method, args)
        try:
            if not (await asyncio.wait([future], timeout=limit or None))[0]:
                process.give_up(number)
                if not (await asyncio.wait([future], timeout=YIELD))[0]:
                    process.end(Blocked())
                    raise Blocked
                raise TimedOut(limit or 0)
        except asyncio.CancelledError:
            process.give_up(number)
            raise
        return settled(future.result())

    async def score(
        self, task: Task, completion: Completion, limit: float | None = None, started: Callable[[], None] = lambda: None
    ) -> Any:
        """What the environment's score returns."""
        return await self.call("score", task, completion, limit=limit, started=started)

    async def close(self, within: float = 2.0) -> None:
        """Ends the processes."""
        if self._together is not None:
            self._together.cancel()
        opened = [p for p in self.all if hasattr(p, "_reading")]
        for process in self.all.difference(opened):
            process.end(InfraFailure("the block is stopping"))
        await asyncio.gather(*(p.close(within) for p in opened))


def _usable(started: asyncio.Task[Process]) -> bool:
    return not started.cancelled() and started.exception() is None and started.result().alive


def settled(answer: bytes) -> Any:
    """The result in an answer of a process, or what its code raised."""
    infra, problem, result = pickle.loads(answer)
    if infra:
        raise InfraFailure(infra)
    if problem is not None:
        raise ScoreFailed(problem)
    return result
