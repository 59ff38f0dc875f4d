"""The next batch, fetched and stored while another trains, so that only its acknowledgement is left to wait for.

Such a lease is an early one: until the acknowledgement the batch counts as waiting, so that environments sample no
earlier, with older weights, than they would otherwise."""

from __future__ import annotations

import contextlib
import threading
import time
from dataclasses import dataclass
from typing import Any

from .api import Client
from .columns import Encoded
from .errors import AtroposAPIError
from .settings import DataSettings
from .spool import Spool


@dataclass
class Fetched:
    """A batch that is stored and not acknowledged yet."""

    lease: str
    groups: list[Any]


class Fetching:
    """Asks for batch `number`, again and again, until there is one or `end` is called. Whatever goes wrong is left to
    whoever needs the batch, who asks for it in the usual way then."""

    def __init__(self, client: Client, spool: Spool, number: int, d: DataSettings):
        self.client, self.spool, self.number, self.d = client, spool, number, d
        self.found: Fetched | None = None
        self.over = threading.Event()
        self.thread = threading.Thread(target=self._run, name="next batch", daemon=True)
        self.thread.start()

    def end(self) -> Fetched | None:
        """The batch, or None; nothing is under way any more. Waits for a request that is, which has a deadline."""
        self.over.set()
        self.thread.join()
        return self.found

    def give_back(self) -> None:
        """Lets the next caller have the batch, which will not be acknowledged."""
        found, self.found = self.end(), None
        if found is not None:
            self.spool.drop(self.number)
            self._release(found.lease)

    def _run(self) -> None:
        began, d = time.monotonic(), self.d
        with contextlib.suppress(AtroposAPIError):
            while not self.over.is_set():
                answer, came = self.client.fetch("GET", f"/batch?lease={d.lease_seconds:g}s&early=true")
                if isinstance(answer, dict) and answer.get("batch"):
                    self._store(answer, came)
                    return
                self.over.wait(min(max(d.batch_retry_delay, (time.monotonic() - began) / 20), d.batch_max_wait))

    def _store(self, answer: dict[str, Any], came: Encoded) -> None:
        lease = str(answer.get("lease") or answer.get("id"))
        try:
            self.spool.put(self.number, lease, came)
        except OSError:  # a full disk, which may have room when the batch is needed
            self._release(lease)
            return
        self.found = Fetched(lease, answer["batch"])

    def _release(self, lease: str) -> None:
        with contextlib.suppress(AtroposAPIError):  # it runs out by itself
            self.client.call("POST", f"/batch/{lease}/release", {}, self.d.connect_timeout)
