"""Which level of difficulty each dataset is at: raised when its answers are good, and kept across restarts."""

from __future__ import annotations

import json
import os
import stat
import tempfile
import threading
from collections import deque
from pathlib import Path


class Levels:
    """The levels of several datasets. Its methods may be called from several threads."""

    def __init__(self, file: Path, start: dict[str, int], window: int, threshold: float) -> None:
        """file keeps the levels; start has the first level of each dataset; a level is raised when the mean of the last
        `window` scores at it is at least threshold."""
        self._file, self._window, self._threshold = file, window, threshold
        self._lock = threading.Lock()
        self._levels = dict(start)
        self._scores: dict[str, deque[float]] = {name: deque(maxlen=window) for name in start}
        self._levels.update((name, max(level, start[name])) for name, level in read(file).items() if name in start)

    def level(self, name: str) -> int:
        with self._lock:
            return self._levels[name]

    def scored(self, name: str, level: int, score: float) -> int | None:
        """Counts a score; returns the new level when that has raised it. Answers to tasks of another level than the
        present one do not count."""
        with self._lock:
            if level != self._levels[name]:
                return None
            scores = self._scores[name]
            scores.append(score)
            if len(scores) < self._window or sum(scores) / len(scores) < self._threshold:
                return None
            scores.clear()
            self._levels[name] += 1
            self._keep()
            return self._levels[name]

    def _keep(self) -> None:
        """Replaces the file in one step. Its folder may have come from elsewhere: the name cannot be guessed, so no
        link or second name of another file is there."""
        with tempfile.NamedTemporaryFile("w", dir=self._file.parent, prefix=".levels-", delete=False) as f:
            try:
                json.dump(self._levels, f)
                f.flush()
                os.replace(f.name, self._file)
            except BaseException:
                os.unlink(f.name)
                raise


MOST_BYTES = 1 << 20  # of the file


def read(file: Path) -> dict[str, int]:
    """The levels in a file; none where it is not there, is no regular file, or holds something else."""
    try:
        with open(os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as f:
            if not stat.S_ISREG(os.fstat(f.fileno()).st_mode):
                return {}
            kept = json.loads(f.read(MOST_BYTES))
    except (OSError, ValueError, RecursionError):
        return {}
    if not isinstance(kept, dict):
        return {}
    return {name: level for name, level in kept.items() if type(level) is int}
