"""Keeps the worker process answering whatever an author's code does: threads that never return, and an event loop that
is held up."""

from __future__ import annotations

import os
import sys
import threading
import time
import traceback
from asyncio import AbstractEventLoop
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from . import load

EVERY = 1.0  # seconds
TELL_AFTER = 3.0  # seconds in which an event loop does nothing


class Threads(ThreadPoolExecutor):
    """So many threads for calls that return. One that is given up while it runs keeps its thread, which cannot be
    ended, and another takes its place, as often as `most` says; then the process ends, since threads take memory."""

    def __init__(self, workers: int, most: int | None = None) -> None:
        super().__init__(workers, thread_name_prefix="environment")
        self.most = most or max(workers, 32)
        self.given_up = 0
        self._counting = threading.Lock()

    def submit(self, fn: Callable[..., Any], /, *args: Any, **named: Any) -> Future[Any]:
        future = super().submit(fn, *args, **named)
        cancel, told = future.cancel, threading.Event()

        def give_up() -> bool:
            if cancel():
                return True
            if not future.done() and not told.is_set():
                told.set()
                self._lend(future, getattr(fn, "__qualname__", repr(fn)))
            return False

        future.cancel = give_up  # type: ignore[method-assign]
        return future

    def _lend(self, future: Future[Any], name: str) -> None:
        with self._counting:
            self.given_up += 1
            self._max_workers += 1
            if self.given_up > self.most:
                end(f"{self.given_up} calls of the environment, such as {name}, were given up and have never returned")
        future.add_done_callback(self._returned)
        super().submit(int)  # starts the thread, which the calls that wait get

    def _returned(self, _: Future[Any]) -> None:
        with self._counting:
            self.given_up -= 1


class Watch:
    """Looks at an event loop from a thread: says what holds it up, and ends the process after `limit` seconds. Only
    time during which this process runs counts."""

    def __init__(self, loop: AbstractEventLoop, limit: float) -> None:
        self.loop, self.limit = loop, limit
        self.thread = threading.get_ident()  # the loop's
        self.ticks = 0
        self.told: set[str] = set()
        self._tick()
        threading.Thread(target=self._look, daemon=True).start()

    def _tick(self) -> None:
        self.ticks += 1
        self.loop.call_later(EVERY / 2, self._tick)

    def _look(self) -> None:
        seen, still = 0, 0.0
        while not self.loop.is_closed():
            time.sleep(EVERY)
            still = still + EVERY if seen == self.ticks else 0.0
            seen = self.ticks
            if still < TELL_AFTER:
                continue
            where = place(self.thread)
            if where not in self.told and len(self.told) < 16:
                self.told.add(where)
                warn(f"{where} holds up all other calls of this environment: it runs in the event loop. Await what "
                     "takes time there, or call it by asyncio.to_thread")  # fmt: skip
            if 0 < self.limit <= still:
                traceback.print_stack(sys._current_frames().get(self.thread), file=sys.stderr)
                end(f"{where} has held up the event loop for {still:.0f} s (score_timeout = {self.limit:g}s)")


def place(thread: int) -> str:
    """Where a thread is: the innermost line that is the author's."""
    stack = traceback.extract_stack(sys._current_frames().get(thread))
    for frame in reversed(stack):
        if not load.ours(frame.filename) and not load.installed(frame.filename):
            return f"{os.path.basename(frame.filename)}:{frame.lineno}: {frame.name}"
    last = stack[-1]
    return f"{os.path.basename(last.filename)}:{last.lineno}: {last.name}"


def warn(text: str) -> None:
    print(f"warning: {text}", file=sys.stderr, flush=True)


def end(why: str) -> None:
    """Ends the process: the engine starts the block anew."""
    print(f"the environment's process ends: {why}", file=sys.stderr, flush=True)
    os._exit(3)
