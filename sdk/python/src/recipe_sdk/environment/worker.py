"""A process that runs methods of an environment, one at a time in its main thread, or as coroutines of one event loop.

`recipe_sdk.environment.processes` starts it and talks to it over an inherited socket: messages are a length and a
pickle.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import inspect
import os
import pickle
import signal
import socket
import sys
import threading
import time
from pathlib import Path
from typing import Any

from . import load
from .base import Context, Environment, InfraFailure, canceled
from .processes import LENGTH, Origin
from .settings import build

Answer = tuple[str, "dict[str, Any] | None", Any]
"""The text of an infra failure, what the author's code did wrong, or the result."""

PR_SET_PDEATHSIG = 1
LOOK_EVERY = 2.0  # seconds


def end_with(parent: int) -> None:
    """Ends this process when its parent is gone. Linux does so itself, also where a call holds Python's lock."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(LOOK_EVERY)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def made(origin: Origin) -> Environment:
    """Makes the environment in this process, as far as scores need it."""
    cls = load.environment_of(load.module_of(origin.source, origin.original), origin.plugin)
    environment = cls.__new__(cls)
    environment.context = Context(origin.name, Path(origin.folder), Path(origin.state), _log)
    environment.settings = build(load.settings_of(cls), origin.settings)
    environment.__init__()  # type: ignore[misc]
    call(environment.setup_scoring)
    return environment


def _log(level: str, message: str) -> None:
    print(f"{level}: {message}", file=sys.stderr)


def call(method: Any, *args: Any) -> Any:
    """Calls a method of the author's, asynchronous or not."""
    result = method(*args)
    if not inspect.isawaitable(result):
        return result

    async def wait() -> Any:
        return await result

    return asyncio.run(wait())


def failed(error: BaseException) -> Answer:
    """An exception of the author's code as an answer."""
    if isinstance(error, InfraFailure):
        return str(error) or type(error).__name__, None, None
    return "", load.problem(error), None


class Alone:
    """Runs one call after the other, in the main thread and without an event loop."""

    def __init__(self, connection: socket.socket) -> None:
        self.file = connection.makefile("rwb")
        self.environment: Environment | None = None
        self.refused: Answer | None = None  # the answer to every call where the environment could not be made

    def read(self) -> bytes | None:
        """One message; None: the other side is gone."""
        head = self.file.read(LENGTH.size)
        if len(head) < LENGTH.size:
            return None
        (length,) = LENGTH.unpack(head)
        data = self.file.read(length)
        return data if len(data) == length else None

    def send(self, number: int, answer: Answer) -> None:
        data = packed(number, answer)
        self.file.write(LENGTH.pack(len(data)) + data)
        self.file.flush()

    def open(self) -> bool:
        """Makes the environment; false: there is nothing to do."""
        first = self.read()
        if first is None:
            return False
        try:
            self.environment = made(pickle.loads(first))
        except BaseException as e:
            self.refused = failed(e)
        self.send(0, ("", None, None))
        return True

    def run(self) -> None:
        while (data := self.read()) is not None:
            number, method, args = pickle.loads(data)
            self.send(number, self.refused or self.answer(method, args))

    def answer(self, method: str, args: bytes) -> Answer:
        try:
            return "", None, call(getattr(self.environment, method), *pickle.loads(args))
        except BaseException as e:  # SystemExit and a panic of a library in Rust, too, are mistakes like any other
            return failed(e)

    def close(self) -> None:
        if self.environment is not None:
            call(self.environment.close)


class Together(Alone):
    """Runs the coroutines of all calls in one event loop."""

    def run(self) -> None:
        asyncio.run(self.serve())

    async def serve(self) -> None:
        loop = asyncio.get_running_loop()
        running: dict[int, asyncio.Task[None]] = {}
        while (data := await loop.run_in_executor(None, self.read)) is not None:
            number, method, args = pickle.loads(data)
            if method is None:
                if number in running:
                    running[number].cancel()
                continue
            running[number] = asyncio.create_task(self.one(number, method, args, running))

    async def one(self, number: int, method: str, args: bytes, running: dict[int, asyncio.Task[None]]) -> None:
        answer: Answer = "the call was given up", None, None
        try:
            answer = self.refused or ("", None, await getattr(self.environment, method)(*pickle.loads(args)))
        except BaseException as e:
            if not (isinstance(e, asyncio.CancelledError) and canceled()):
                answer = failed(e)
        running.pop(number)
        self.send(number, answer)


def packed(number: int, answer: Answer) -> bytes:
    try:
        return pickle.dumps((number, pickle.dumps(answer)))
    except Exception as e:  # what the author's code returned
        return pickle.dumps((number, pickle.dumps(("", {"message": f"what was returned cannot be sent: {e}"}, None))))


def main(descriptor: str, together: str, parent: str) -> None:
    """Answers until the other side closes the connection."""
    end_with(int(parent))
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    connection = socket.socket(fileno=int(descriptor))
    connection.set_inheritable(False)
    server = (Together if together == "1" else Alone)(connection)
    with contextlib.suppress(OSError):
        if server.open():
            server.run()
            server.close()
    sys.stdout.flush()
    os._exit(0)  # threads of the author's would hold the process


if __name__ == "__main__":
    main(*sys.argv[1:])
