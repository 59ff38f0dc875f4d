"""What the run does next, decided by rank 0: a command, a batch, or waiting with a reason and a deadline."""

from __future__ import annotations

import time
from collections import deque
from pathlib import Path
from typing import Any

from .control import Command, Control
from .errors import AtroposAPIError, NoDataError, SyncTimeout, WorkerError
from .events import Events
from .files import free
from .rollouts import Delivery, Rollouts
from .settings import RunSettings

HEARTBEAT = 10.0  # seconds after which ranks without work hear from rank 0
RETRY = 10.0  # seconds after which a full disk is tried although no room was seen to come back: quotas show nowhere
ABOUT_WEIGHTS = ("publish", "logprobs", "tokenize", "taken", "synced", "refused")  # commands
Order = tuple[str, Any]


class Feed:
    """Commands come first, then a pending weight publication, then the next batch."""

    def __init__(self, c: RunSettings, events: Events, control: Control | None, rollouts: Rollouts):
        self.config, self.events, self.control, self.rollouts = c, events, control, rollouts
        rollouts.pause = self.pause
        self.waiting: Command | None = None  # the command being carried out; its answer is due
        self.arrived: Command | None = None  # it came while this side paused
        self.later: deque[Command] = deque()  # they came while weights were to be settled
        self.rewards: deque[float] = deque(maxlen=8)
        self.shared = c.wait_for_sync  # the device is shared with inference, as far as the supervisor has said
        self.asked = self.granted = False  # the device, for the batch that is held
        self.sync: tuple[float, int] | None = None  # since when, and of which step, weights wait to be synced
        self.ahead = False  # they have been taken: batches may be trained meanwhile
        self.held_up = 0.0  # seconds that training has waited for weights to be taken or served, since the last report
        self.held: Delivery | None = None
        self.paused = False  # a person has paused the run
        self.since = time.monotonic()
        self.explained = False

    def decide(self, last: bool = False) -> Order:
        """("command", (name, body)) | ("batch", Delivery) | ("completed" | "stopped" | "solved", None) |
        ("fail", error) | ("idle", None). Returns at least every HEARTBEAT seconds. last: the last step is done; only
        its weights may still have to be synced."""
        try:
            return self._next(last)
        except WorkerError as e:
            return "fail", e

    def _next(self, last: bool) -> Order:
        until = time.monotonic() + HEARTBEAT
        while time.monotonic() < until:
            command = self.later.popleft() if self.later else self._command()
            if command is not None:
                self.waiting = command
                return ("stopped", None) if command.name == "stop" else ("command", (command.name, command.body))
            if last and not self.sync:
                return "completed", None
            order = self._sync(until) if self.sync and (last or not self.ahead) else self._batch()
            if order is not None:
                return order
        return "idle", None

    def settle(self) -> Order:
        """What comes before a change of weights that were taken: ("command", (name, body)) about them | ("settled",
        None): nothing does, or the run is to stop, and what inference loads does not matter | ("idle", None) |
        ("fail", error). Other commands stay for decide."""
        until = time.monotonic() + HEARTBEAT
        while time.monotonic() < until and self.sync is not None:
            command = self._command()
            if command is None:
                if self.events.state["phase"] != "settling":
                    self.events.phase("settling", for_what="inference to serve the weights")
                try:
                    self._sync(until)
                except WorkerError as e:
                    return "fail", e
            elif command.name in ABOUT_WEIGHTS:
                self.waiting = command
                return "command", (command.name, command.body)
            else:
                self.later.append(command)
                if command.name == "stop":
                    return "settled", None
        return ("idle" if self.sync is not None else "settled"), None

    def _command(self) -> Command | None:
        """What has come, if anything has."""
        command, self.arrived = self.arrived or (self.control.next(0) if self.control else None), None
        return command

    def answer(self, value: Any = None, error: Exception | None = None) -> None:
        """Answers the command being carried out, if there is one."""
        command, self.waiting = self.waiting, None
        if command is None:
            return
        if error is not None:
            command.answer.set_exception(error)
        else:
            command.answer.set_result(value)

    def pause(self, seconds: float) -> None:
        """Waits, but not beyond the arrival of a command."""
        if self.arrived is None and seconds > 0:
            if self.control is None:
                time.sleep(seconds)
            else:
                self.arrived = self.control.next(seconds)

    def quiet(self) -> bool:
        """Whether no command waits."""
        return not self.later and self.arrived is None and (self.control is None or self.control.commands.empty())

    def offer(self, step: int, ahead: bool = False) -> None:
        """Offers the weights of `step`: no further batch until inference serves them, or need not; ahead: or until they
        have been taken."""
        self.sync, self.ahead = (time.monotonic(), step), False
        self.events.phase("sync", for_what="inference to serve the weights")
        if self.control is not None:
            self.control.ask("sync", step=step, **({"ahead": True} if ahead else {}))

    def postpone(self) -> None:
        """The weights that are offered cannot be published yet: the time to wait for that begins anew."""
        if self.sync is not None:
            self.sync = (time.monotonic(), self.sync[1])

    def room(self, folder: Path, before: int, since: float) -> Order:
        """What to do while a disk takes no checkpoint: ("command", (name, body)) | ("stopped", None) | ("retry", None)
        when it has more room than `before`, or after a while | ("idle", None). A stop stays for decide."""
        until = time.monotonic() + HEARTBEAT
        while time.monotonic() < until:
            command = self.later.popleft() if self.later else self._command()
            if command is not None and command.name == "stop":
                self.arrived = command
                return "stopped", None
            if command is not None:
                self.waiting = command
                return "command", (command.name, command.body)
            if free(folder) > before or time.monotonic() - since > RETRY:
                return "retry", None
            self.pause(0.25)
        return "idle", None

    def synced(self, shared: bool) -> None:
        """The weights that were offered are served, or nobody wants them."""
        self._go_on()
        self.sync, self.ahead, self.shared, self.rollouts.oldest = None, False, shared, None

    def taken(self, oldest: int | None) -> None:
        """The weights that were offered have been read. Groups of a policy version before `oldest` are too old."""
        self._go_on()
        self.ahead, self.rollouts.oldest = self.sync is not None, oldest

    def _go_on(self) -> None:
        if self.sync is not None and not self.ahead:
            self.held_up += time.monotonic() - self.sync[0]

    def turn(self, shared: bool) -> None:
        """The batch that is held may use the device."""
        self.granted, self.shared = True, shared

    def _sync(self, until: float) -> Order | None:
        assert self.sync is not None  # the caller has looked
        since, step = self.sync
        if time.monotonic() - since > self.config.sync_timeout:
            raise SyncTimeout(
                f"the weights of step {step} were ready, but inference did not serve them within "
                f"{self.config.sync_timeout:.0f} s",
                ["Is the sync block running, and does it reach inference?",
                 "Does writing this model take longer? Raise sync_timeout."],
            )  # fmt: skip
        self.pause(min(1.0, max(until - time.monotonic(), 0.0)))
        return None

    def _batch(self) -> Order | None:
        """A batch to train, or None after one round of polls or a second of a pause."""
        if self.paused:
            if self.events.state["phase"] != "paused":
                self.events.phase("paused")
            self.pause(1.0)
            return None
        if self.events.state["phase"] not in ("waiting", "turn", "no_room"):
            self.since, self.explained = time.monotonic(), False
            self.events.phase("waiting", for_what="a batch")
        self.held = self.held or self.rollouts.replay()
        if self.held is None:
            try:
                self.held = self.rollouts.round(lambda: not self.quiet())
            except AtroposAPIError as e:
                if e.kind == "http_4xx":
                    raise
                return self._nothing(e)
        if self.held is None:
            return self._nothing(None) if self.quiet() else None
        if self.shared and not self.granted:
            if self.events.state["phase"] != "turn":
                self.events.phase("turn", for_what="inference to give the device back", batch=self.held.number)
            if self.control is not None and not self.asked:  # without a control connection nothing is ever shared
                self.asked = True
                self.control.ask("turn", step=self.events.state["step"] + 1)
            self.pause(1.0)
            return None
        delivery, self.held, self.asked, self.granted = self.held, None, False, False
        delivery.waited = time.monotonic() - self.since
        return "batch", delivery

    def _nothing(self, failure: AtroposAPIError | None) -> Order | None:
        """Says once why nothing comes, and ends the wait by rule: solved, or a failure."""
        d, idle = self.config.data, time.monotonic() - self.since
        over = idle >= d.no_data_timeout
        if self.rollouts.unstored is not None or (not over and (self.explained or idle < d.explain_after)):
            return None  # a batch that waits for room on the disk is there
        reason, checks = (failure.message, failure.checks) if failure else self.rollouts.why_nothing()
        self.explained = True
        self.events.emit("no_data", seconds=idle, reason=reason, checks=checks)
        if not over:
            return None
        recent = sum(self.rewards) / len(self.rewards) if self.rewards else None
        if failure is None and d.solved_reward is not None and recent is not None and recent >= d.solved_reward:
            self.events.emit("solved", reward=recent, reason=reason)
            return "solved", None
        raise NoDataError(f"no batch for {idle:.0f} s: {reason}", checks)
