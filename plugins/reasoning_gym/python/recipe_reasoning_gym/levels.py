"""Which level of difficulty each dataset is at: raised when its answers are good, and kept across restarts."""

from __future__ import annotations

import json
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
        if file.is_file():
            kept = json.loads(file.read_text())
            self._levels.update((name, max(level, start[name])) for name, level in kept.items() if name in start)

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
            partial = self._file.with_suffix(".new")
            partial.write_text(json.dumps(self._levels))
            partial.replace(self._file)
            return self._levels[name]
