"""Scores in processes of their own, for an environment with `processes`: Python's threads share one core.

Each process makes the environment anew, and ends with its parent. One that dies makes the scores that it owed infra
failures; others take its place.
"""

from __future__ import annotations

import asyncio
import inspect
import os
import signal
import sys
import threading
import time
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from multiprocessing import connection, parent_process, util
from multiprocessing.context import SpawnContext, SpawnProcess
from pathlib import Path
from typing import Any

from . import load
from .base import Completion, Context, Environment, InfraFailure, Task
from .settings import build

LOOK_EVERY = 2.0  # seconds


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
    """The author's score raised an exception in its process; problem names the line."""

    def __init__(self, problem: dict[str, Any]) -> None:
        super().__init__(problem["message"])
        self.problem = problem


class _Spawning(SpawnContext):
    """Spawns, because a fork would copy the threads' locks and the connection, and knows what it has made."""

    def __init__(self) -> None:
        super().__init__()
        self.made: list[SpawnProcess] = []

    def Process(self, *args: Any, **named: Any) -> SpawnProcess:  # type: ignore[override]
        self.made.append(SpawnProcess(*args, **named))
        return self.made[-1]

    def died(self) -> bool:
        """Whether any of them has ended. The pool sees that by its files, which are closed a moment before there is an
        exit code."""
        return any(p.pid is not None and bool(connection.wait([p.sentinel], 0)) for p in self.made)

    def ends(self) -> str:
        """How those ended that nobody ended; empty: it is not known."""
        codes: set[int] = set()
        for process in self.made:
            if process.pid is None or not connection.wait([process.sentinel], 0):
                continue
            until = time.monotonic() + 1  # it has closed its files a moment before it has a code
            while (code := process.exitcode) is None and time.monotonic() < until:
                time.sleep(0.001)
            if code is not None and code not in (0, -signal.SIGTERM):
                codes.add(code)
        return ", ".join(f"exit code {c}" if c > 0 else f"signal {-c} ({signal.strsignal(-c)})" for c in sorted(codes))

    def end(self) -> None:
        """Ends all that were started: one that could not be is among them, too."""
        for process in self.made:
            if process.pid is not None:
                process.terminate()


class Scorers:
    """So many processes, which are started when they are needed."""

    def __init__(self, origin: Origin, processes: int) -> None:
        self.origin, self.processes = origin, processes
        self._start()

    def _start(self) -> None:
        self.context = _Spawning()
        self.pool = ProcessPoolExecutor(self.processes, self.context, _open, (self.origin,))

    def _replace(self) -> None:
        """A pool in the place of one that is broken. The broken one ends its processes, except one that starts at that
        moment, and then waits for all of them: for that one for ever, and so would the interpreter at its end."""
        self.context.end()
        self._start()

    def _submit(self, task: Task, completion: Completion) -> asyncio.Future[Any]:
        """Gives a score to the pool, which starts a process for it when none is idle. If one of its others dies
        meanwhile, it closes what the new one is started with, and then says so instead of that it is broken."""
        try:
            return asyncio.get_running_loop().run_in_executor(self.pool, _score, task, completion)
        except OSError as e:
            if self.context.died():
                raise BrokenProcessPool(f"while another was started: {e}") from e
            raise InfraFailure(f"no process that scores can be started: {e}") from e

    async def score(self, task: Task, completion: Completion) -> Any:
        """What the environment's score returns."""
        pool, context = self.pool, self.context
        future: asyncio.Future[Any] | None = None
        try:
            future = self._submit(task, completion)
            while not (await asyncio.wait([future], timeout=LOOK_EVERY))[0]:
                # the pool sees to a process that it started late with the next score only, which may not come
                if self.pool is pool and self.context.died():
                    self._replace()
            infra, problem, score = future.result()
        except asyncio.CancelledError:
            if future is not None:
                future.cancel()
            raise
        except BrokenProcessPool as e:
            ends = context.ends()
            if self.pool is pool:  # the first that notices
                self._replace()
            pool.shutdown(wait=False)
            raise InfraFailure(f"a process that scores has ended: {ends or e}") from None
        if infra:
            raise InfraFailure(infra)
        if problem is not None:
            raise ScoreFailed(problem)
        return score

    def close(self) -> None:
        """Ends the processes."""
        self.pool.shutdown(cancel_futures=True)


Scored = tuple[str, dict[str, Any] | None, Any]
"""The text of an infra failure, what the author's code did wrong, or the score."""

_environment: Environment
_refused: Scored | None = None  # the answer to every score where the environment could not be made


def _open(origin: Origin) -> None:
    """Makes the environment in this process. What it raises is the answer to the scores that this process gets: the
    pool would only say that a process has ended."""
    global _refused
    threading.Thread(target=_end_with_parent, daemon=True).start()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        _make(origin)
    except (Exception, *load.ENDS) as e:
        _refused = _failed(e)


def _make(origin: Origin) -> None:
    global _environment
    cls = load.environment_of(load.module_of(origin.source, origin.original), origin.plugin)
    made = cls.__new__(cls)
    made.context = Context(origin.name, Path(origin.folder), Path(origin.state), _log)
    made.settings = build(load.settings_of(cls), origin.settings)
    made.__init__()  # type: ignore[misc]
    _call(made.setup)
    util.Finalize(None, _call, (made.close,), exitpriority=10)
    _environment = made


def _end_with_parent() -> None:
    parent = parent_process()
    if parent is not None:
        parent.join()
    os._exit(1)


def _log(level: str, message: str) -> None:
    print(f"{level}: {message}", file=sys.stderr)


def _call(method: Any, *args: Any) -> Any:
    """Calls a method of the author's, asynchronous or not."""
    result = method(*args)
    if not inspect.isawaitable(result):
        return result

    async def wait() -> Any:
        return await result

    return asyncio.run(wait())


def _score(task: Task, completion: Completion) -> Scored:
    """One score, in this process."""
    if _refused is not None:
        return _refused
    try:
        return "", None, _call(_environment.score, task, completion)
    except (Exception, *load.ENDS) as e:
        return _failed(e)


def _failed(error: BaseException) -> Scored:
    """An exception of the author's code as an answer."""
    if isinstance(error, InfraFailure):
        return str(error) or type(error).__name__, None, None
    return "", load.problem(error), None
