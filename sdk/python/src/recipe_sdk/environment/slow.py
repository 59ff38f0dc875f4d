"""Names calls of an author's code that take long, in the log and in the block's status, before their time is over."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager

AFTER = 10.0  # seconds


class Slow:
    """Calls that take longer than `after` seconds. waiting gets the oldest of them in words, and "" without one."""

    def __init__(
        self, log: Callable[[str, str], None], waiting: Callable[[str], None], limit: float, after: float = AFTER
    ) -> None:
        self.log, self.waiting, self.limit, self.after = log, waiting, limit, after
        self._calls: dict[int, str] = {}
        self._next = 0
        self._count: dict[str, int] = {}  # of calls that took long, by function

    @contextmanager
    def call(self, name: str, what: Callable[[], str]) -> Iterator[Callable[[], None]]:
        """A call of a function, and with what. Its time begins with the function that it gives: a call may wait for a
        free process."""
        number, self._next = self._next, self._next + 1
        timer: list[asyncio.TimerHandle] = []

        def late() -> None:
            self._calls[number] = f"{name} with {what()}"
            count = self._count[name] = self._count.get(name, 0) + 1
            if count & (count - 1) == 0:  # the first, and each time their number has doubled
                ends = f"; it is ended after score_timeout = {self.limit:g} s" if self.limit else ""
                again = f" ({count} such calls so far)" if count > 1 else ""
                self.log("warn", f"{self._calls[number]} has not returned for {self.after:g} s{ends}{again}")
            self._tell()

        def start() -> None:
            timer.append(asyncio.get_running_loop().call_later(self.after, late))

        try:
            yield start
        finally:
            for handle in timer:
                handle.cancel()
            if self._calls.pop(number, None) is not None:
                self._tell()

    def _tell(self) -> None:
        calls = list(self._calls.values())
        more = f", and {len(calls) - 1} more calls" if len(calls) > 1 else ""
        self.waiting(calls[0] + more if calls else "")


def unwatched() -> Slow:
    """For an environment that no block has opened, as in a test."""
    return Slow(lambda level, message: None, lambda text: None, 0.0)
