"""Groups that cannot be trained on, kept for people to look at."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

FILES, BYTES = 64, 64 << 20  # what is wrong with one group is mostly wrong with the next: the first ones are enough


class RejectedGroups:
    """A folder with at most FILES groups and BYTES bytes."""

    def __init__(self, directory: Path):
        self.directory = directory
        sizes = [p.stat().st_size for p in directory.glob("*.json")] if directory.is_dir() else []
        self.files, self.bytes = len(sizes), sum(sizes)

    def keep(self, batch: int, group: object, reason: str) -> bool:
        """Writes a group with the reason why it was not used; False when the folder is full or the disk refuses."""
        if self.files >= FILES:
            return False
        now = time.strftime("%Y%m%dT%H%M%S", time.gmtime())
        text = json.dumps({"time": now, "batch": batch, "reason": reason, "group": group}, default=_plain)
        if self.bytes + len(text) > BYTES:
            return False
        try:
            self.directory.mkdir(parents=True, exist_ok=True)
            (self.directory / f"group-{now}-{self.files:03d}.json").write_text(text, encoding="utf-8")
        except OSError:
            return False
        self.files, self.bytes = self.files + 1, self.bytes + len(text)
        return True


def _plain(numbers: Any) -> Any:
    """What json does not know: an array."""
    return numbers.tolist()
