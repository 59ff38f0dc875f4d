"""The event file: one JSON object a line, flushed at once. Every event has time (Unix seconds), seq and type."""

from __future__ import annotations

import json
import math
import os
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .control import Control


def plain(value: Any) -> Any:
    """Numbers that JSON has no word for become null."""
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, dict):
        return {str(k): plain(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(v) for v in value]
    return value


class Events:
    """Tells the supervisor what happens, and appends it to a file if there is one. It remembers the state."""

    def __init__(self, path: str | None = None, control: Control | None = None):
        self.control = control
        self._lock = threading.Lock()
        self._seq = 0
        self._file = None
        self.state: dict[str, Any] = {"phase": "starting", "step": 0, "metrics": {}, "policy_version": 0}
        if path is not None:
            Path(path).parent.mkdir(parents=True, exist_ok=True)
            handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
            self._file = os.fdopen(handle, "a", encoding="utf-8")

    def emit(self, kind: str, **fields: Any) -> None:
        """One event."""
        with self._lock:
            self._seq += 1
            record = {"time": time.time(), "seq": self._seq, "type": kind, **fields}
            record = plain(record)
            if self.control is not None:
                self.control.notify("event", record)
            if self._file is not None:
                self._file.write(json.dumps(record, allow_nan=False) + "\n")
                self._file.flush()

    def phase(self, name: str, **fields: Any) -> None:
        """The worker enters a phase."""
        self.state.update(phase=name, phase_since=time.time(), detail=fields)
        self.emit("phase", phase=name, step=self.state["step"], **fields)

    def snapshot(self) -> dict[str, Any]:
        """What the run came to so far."""
        found: dict[str, Any] = plain(dict(self.state))
        return found

    def close(self) -> None:
        """Closes the file."""
        with self._lock:
            if self._file is not None:
                self._file.close()
                self._file = None
