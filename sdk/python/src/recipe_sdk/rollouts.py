"""Batches from the trajectory API: registration, polling, leases, and a spool that makes resume exact.

A batch is written to the spool (fsync) and only then acknowledged, so a kill at any moment neither loses it nor trains
it twice. It stays in the spool until a checkpoint covers it: a resumed run reads the same batches in the same order.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from .api import Client
from .columns import Encoded
from .errors import AtroposAPIError
from .events import Events
from .fetching import Fetching
from .files import full, refused
from .groups import versions
from .settings import RunSettings
from .spool import Spool

Pause = Callable[[float], None]


@dataclass
class Delivery:
    """A batch as it came. number: its place in this run's order (the cursor that checkpoints keep). oldest: groups of a
    policy version before it do not train, which is stored with it, so that a step is the same when it is made again."""

    number: int
    groups: list[Any]
    replayed: bool
    waited: float = 0.0
    lease: str | None = None
    oldest: int | None = None


class Rollouts:
    """The trajectory API as the trainer sees it."""

    def __init__(self, config: RunSettings, events: Events, spool: Spool, pause: Pause = time.sleep):
        self.config, self.events, self.spool, self.pause = config, events, spool, pause
        self.client = Client(config.data.url, config.data.token, config.data.timeout)
        self.next = spool.cursor + 1
        self.uuid = None
        self.starting_step = 0
        self.oldest: int | None = None  # of what comes now; the server itself leaves out what it knows to be too old
        self.begun: Delivery | None = None  # came when environments were let begin
        self.empty_since: float | None = None  # the first poll of this wait that brought nothing
        self.unstored: tuple[str | None, list[Any], Encoded] | None = None  # a batch that the disk has no room for
        self.leases = False  # the server has leased a batch: run-api hands them out for good
        self.ahead: Fetching | None = None  # the next batch, on its way while one trains

    def connect(self, starting_step: int) -> None:
        """Tests the connection, settles a lease left by an earlier life, registers. Order matters: registering makes
        the server give unacknowledged leases to the next caller."""
        self.starting_step = starting_step
        self._attempts("reach the trajectory API", lambda: self._get("/status"))
        left = self.spool.pending()
        if left is not None:
            self._settle(*left)
        self.register()

    def _get(self, path: str) -> object:
        return self.client.call("GET", path, timeout=self.config.data.connect_timeout)

    def _attempts(self, what: str, action: Callable[[], object]) -> object:
        """R5: a few attempts with exponential delays. A refusal (4xx) is final."""
        d = self.config.data
        delay = d.register_delay[0]
        for attempt in range(1, d.register_attempts + 1):
            try:
                return action()
            except AtroposAPIError as e:
                if attempt == d.register_attempts or e.kind == "http_4xx":
                    raise
                self.events.emit("retry", what=what, attempt=attempt, delay=delay, reason=e.message)
                self.pause(delay)
                delay = min(delay * 2, d.register_delay[1])
        return None

    def register(self) -> None:
        """POST /register. Empty strings, not null, where W&B is off: run-api keeps environments waiting on null."""
        c = self.config
        body = {
            "wandb_group": c.data.wandb_group or os.environ.get("WANDB_RUN_GROUP", ""),
            "wandb_project": c.data.wandb_project or os.environ.get("WANDB_PROJECT", ""),
            "batch_size": c.data.batch_size,
            "max_token_len": c.data.max_length, "checkpoint_dir": os.path.abspath(c.checkpoint_dir),
            "save_checkpoint_interval": c.save_every, "starting_step": self.starting_step, "num_steps": c.steps,
        }  # fmt: skip
        if c.rollout_parts:
            body["rollout_parts"] = True
        answer = self._attempts("register", lambda: self.client.call("POST", "/register", body, c.data.connect_timeout))
        self.uuid = answer.get("uuid") if isinstance(answer, dict) else None
        self.events.emit("registered", uuid=str(self.uuid), starting_step=self.starting_step, url=self.client.shown)

    def _settle(self, number: int, lease: str | None) -> None:
        """An earlier process stored batch `number` and died before it knew that the acknowledgement arrived."""
        if lease is None or self._ack(lease):
            self.spool.acked(number)
            self.events.emit("lease", batch=number, outcome="kept")
        else:
            self.spool.drop(number)
            self.events.emit("lease", batch=number, outcome="lost", reason="it ran out; the server delivers it again")

    def _ack(self, lease: str) -> bool:
        """True when the batch is ours; False when the lease was lost."""
        try:
            self.client.call("POST", f"/batch/{lease}/ack", {})
        except AtroposAPIError as e:
            if e.kind == "http_4xx":
                return False
            raise
        return True

    def replay(self) -> Delivery | None:
        """The next batch that an earlier life of this run had already received, if any."""
        stored = self.spool.get(self.next)
        if stored is None:
            return None
        self.next += 1
        return Delivery(self.next - 1, stored[0], True, oldest=stored[1])

    def begin(self) -> None:
        """Asks for a batch once: environments wait until a trainer has. What comes is kept for the next poll. Where an
        earlier life has asked, its batch comes first."""
        if self.begun is None and self.spool.get(self.next) is None:
            with contextlib.suppress(AtroposAPIError):  # the next poll says what is wrong
                self.begun = self.poll()

    def fetch_ahead(self) -> None:
        """Has the next batch fetched while one trains; poll gives it. Where an earlier life has stored it, that one
        comes, and from a server that does not lease, nothing is fetched."""
        settled = self.ahead is None and self.begun is None and self.unstored is None
        if self.leases and settled and not self.spool.holds(self.next):
            self.ahead = Fetching(self.client, self.spool, self.next, self.config.data)

    def close(self) -> None:
        """Gives a batch back that was fetched and will not be trained."""
        ahead, self.ahead = self.ahead, None
        if ahead is not None:
            ahead.give_back()

    def _fetched(self) -> Delivery | None:
        """The batch that was fetched while another trained, acknowledged; None where there is none, or where its groups
        are too old by now: then the server has others."""
        ahead = self.ahead
        found = ahead.end() if ahead is not None else None
        if ahead is None or found is None or self._outdated(found.groups):
            self.close()
            return None
        taken = self._acknowledge(ahead.number, found.lease, found.groups, None)
        self.ahead = None  # not before: while the server does not answer, the acknowledgement is repeated
        return taken

    def _outdated(self, groups: list[Any]) -> bool:
        """Whether one of them is too old to train, which the server need not know yet."""
        if self.oldest is None:
            return False
        found = (versions(g) for g in groups if isinstance(g, dict))
        return any(sampled is not None and sampled[0] < self.oldest for sampled in found)

    def poll(self) -> Delivery | None:
        """One GET /batch: a batch, stored and acknowledged, or None when the server has none."""
        if self.begun is not None:
            taken, self.begun = self.begun, None
            return taken
        if self.unstored is not None:
            return self._store(*self.unstored)
        if (fetched := self._fetched()) is not None:
            return fetched
        d = self.config.data
        path = f"/batch?lease={d.lease_seconds:g}s" if d.lease_seconds else "/batch"
        try:
            answer, came = self.client.fetch("GET", path)
        except AtroposAPIError as e:
            if e.kind == "status" and "register" in e.message.lower():
                # a restarted run-api has forgotten everything; without this the trainer would wait for ever
                self.events.emit("retry", what="batch", reason=f"{e.message}; registering again")
                self.register()
                return None
            raise
        groups = answer.get("batch") if isinstance(answer, dict) else None
        if not groups:
            return None
        return self._store(answer.get("lease") or answer.get("id"), groups, came)

    def _store(self, lease: str | None, groups: list[Any], came: Encoded) -> Delivery | None:
        """Makes a batch ours; None when its lease was lost, or while the disk does not take it."""
        number = self.next
        try:
            self.spool.put(number, lease, came, oldest := self.oldest)
        except OSError as e:
            if not (full(e, self.spool.directory) or refused(e)):
                raise
            if self.unstored is None:
                where = f"{self.spool.directory} to become writable"
                if full(e, self.spool.directory):
                    where = f"room on the disk of {self.spool.directory}"
                self.events.phase("no_room", for_what=f"{where} for a batch: {e}")
            self.unstored = (lease, groups, came)
            return None
        if self.unstored is not None:
            self.unstored = None
            self.events.phase("waiting", for_what="a batch")
        self.leases = lease is not None
        return self._acknowledge(number, lease, groups, oldest)

    def _acknowledge(self, number: int, lease: str | None, groups: list[Any], oldest: int | None) -> Delivery | None:
        """Makes a stored batch ours for good; None when its lease was lost."""
        if lease is not None and not self._ack(lease):
            self.spool.drop(number)
            reason = "it ran out, or became too old, before it was acknowledged"
            self.events.emit("lease", batch=number, outcome="lost", reason=reason)
            return None
        self.spool.acked(number)
        self.next += 1
        return Delivery(number, groups, False, lease=lease, oldest=oldest)

    def round(self, interrupted: Callable[[], bool]) -> Delivery | None:
        """R4: polls with growing delays; None after batch_retry_attempts polls or when interrupted. A connection error
        counts as an empty poll until the round is over, then it is raised. A delay is a twentieth of the wait so far,
        over all rounds: the device idles from a batch's arrival to the next poll."""
        d = self.config.data
        failure: AtroposAPIError | None = None
        for attempt in range(d.batch_retry_attempts):
            try:
                got = self.poll()
                failure = None
            except AtroposAPIError as e:
                if e.kind == "http_4xx":
                    raise
                failure, got = e, None
                self.events.emit("retry", what="batch", attempt=attempt + 1, reason=e.message)
            if got is not None:
                self.empty_since = None
                return got
            if interrupted():
                return None
            now = time.monotonic()
            if self.empty_since is None:
                self.empty_since = now
            self.pause(min(max(d.batch_retry_delay, (now - self.empty_since) / 20), d.batch_max_wait))
            if interrupted():
                return None
        if failure is not None:
            raise failure
        return None

    def why_nothing(self) -> tuple[str, list[str]]:
        """(reason, what to check) when no batch comes, from what the server says about itself."""
        size = self.config.data.batch_size
        try:
            status = self._get("/status")
        except AtroposAPIError as e:
            return e.message, e.checks
        queue = status.get("queue_size", 0) if isinstance(status, dict) else 0
        if queue:
            return (
                f"{queue} group(s) wait, but no exact batch of {size} rollouts can be made of them",
                [
                    "Do the environments' group_size divide data.batch_size?",
                    "Does an environment with min_batch_allocation send nothing?",
                    "Do groups have odd sizes? run-api never mixes them; the built-in server does.",
                ],
            )
        return (
            "the queue is empty: no environment sends groups",
            [
                "Are the environments alive, and do their logs show requests to the inference server?",
                "Does every group get equal scores? Environments drop those (ensure_scores_are_not_same): the task is "
                "solved, or too hard.",
                "Do lengths fit? max_token_length, max_model_len and data.max_length; a prompt that leaves no room "
                "makes environments spin without a request.",
            ],
        )
