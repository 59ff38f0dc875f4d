"""Batches since the last checkpoint, on disk: a run that was killed reads the same ones again, in the same order.

A file is a line of JSON (number, lease, the oldest policy version that may train, the form of what follows), then the
server's answer as it came: writing it out once more would cost more than the rest of a batch's way from the server to
the model."""

from __future__ import annotations

import contextlib
import json
import os
from pathlib import Path
from typing import Any, cast

from .columns import Encoded
from .files import sync_path


class Spool:
    """Batches since the last checkpoint, on disk."""

    def __init__(self, directory: Path, cursor: int):
        self.directory, self.cursor = directory, cursor
        directory.mkdir(parents=True, exist_ok=True)
        for path in directory.glob("*.tmp"):
            path.unlink()

    def _path(self, number: int, acked: bool) -> Path:
        return self.directory / f"{number:08d}.{'json' if acked else 'leased'}"

    def put(self, number: int, lease: str | None, answer: Encoded, oldest: int | None = None) -> None:
        """Stores a batch durably, not yet acknowledged. oldest: groups of a policy version before it do not train."""
        head = {"number": number, "lease": lease, "oldest": oldest, "form": answer.form}
        self._write(self._path(number, False), head, answer.raw)

    def _write(self, path: Path, head: dict[str, Any], body: bytes = b"") -> None:
        """A file that is whole or not there."""
        temporary = path.with_suffix(".tmp")
        try:
            self.directory.mkdir(parents=True, exist_ok=True)  # it may have been lost with its disk
            with open(temporary, "wb") as f:
                f.write(json.dumps(head).encode() + b"\n")
                f.write(body)
                f.flush()
                os.fsync(f.fileno())
            os.replace(temporary, path)
        except OSError:
            with contextlib.suppress(OSError):
                temporary.unlink(missing_ok=True)
            raise
        sync_path(self.directory)

    def acked(self, number: int) -> None:
        """Marks it ours for good."""
        os.replace(self._path(number, False), self._path(number, True))
        sync_path(self.directory)

    def drop(self, number: int) -> None:
        """Forgets a batch that the server gives to someone else."""
        self._path(number, False).unlink(missing_ok=True)

    def refuse(self, number: int) -> None:
        """Keeps the place of a batch but none of its groups: it will not be trained."""
        self._write(self._path(number, True), {"number": number, "lease": None, "groups": []})

    def pending(self) -> tuple[int, str | None] | None:
        """A batch that was stored but not acknowledged before the process died: (number, lease)."""
        for path in sorted(self.directory.glob("*.leased")):
            with open(path, "rb") as f:
                stored = json.loads(f.readline())
            return stored["number"], stored["lease"]
        return None

    def holds(self, number: int) -> bool:
        """Whether a batch is stored, acknowledged or not."""
        return self._path(number, True).exists() or self._path(number, False).exists()

    def get(self, number: int) -> tuple[list[Any], int | None] | None:
        """The groups of a stored batch, and the oldest policy version that may train."""
        path = self._path(number, True)
        if not path.exists():
            return None
        with open(path, "rb") as f:
            head, body = json.loads(f.readline()), f.read()
        if "groups" in head:  # a batch that is not trained, or one of an earlier version: all of it is that line
            return cast("list[Any]", head["groups"]), None
        return cast("list[Any]", Encoded(head["form"], body).decode()["batch"]), head.get("oldest")

    def clear(self) -> None:
        """Forgets what an earlier run left: it is not this one's."""
        for path in self.directory.iterdir():
            path.unlink()

    def covered(self, cursor: int) -> None:
        """A checkpoint holds everything up to and including batch `cursor`."""
        for path in self.directory.glob("*.json"):
            if int(path.stem) <= cursor:
                path.unlink()
