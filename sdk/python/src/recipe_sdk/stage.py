"""The stage before a block is started (docs/trainer-protocol.md, "Prepared, then started").

A worker that is told to prepare does what needs nobody else: it imports, and loads its model while inference starts.
Then it asks to be started, and is answered with the settings that nobody knew before.
"""

from __future__ import annotations

import dataclasses
from typing import TypeVar

from . import settings
from .control import Control
from .errors import WorkerError
from .events import Events
from .fields import merge
from .settings import RunSettings

S = TypeVar("S", bound=RunSettings)
HOST = "host"  # nothing that touches the device, which an inference server shares and may be measuring
BESIDE = "beside"  # what follows HOST when inference on the device has taken its memory: the rest may be used


def started(block: S, control: Control | None, events: Events, beside: bool = False) -> S:
    """Waits until the block is started; its settings then. beside: or until it may go on preparing on the device; its
    setting `prepare` is BESIDE then. SystemExit when it is stopped instead, or the supervisor has died: it is the
    supervisor that bounds the wait, by what it waits for."""
    if control is None:
        raise WorkerError("prepare needs a supervisor that starts the block", ["Set control, or leave prepare out."])
    events.phase("prepared")
    control.ask("prepared", **({"beside": True} if beside else {}))
    while True:
        command = control.next(60.0)
        if command is None:
            continue
        if command.name == "start":
            prepare = command.body.get("prepare", "") if beside else ""
            given = merge(dataclasses.asdict(block), {**command.body["settings"], "prepare": prepare})
            return settings.from_dict(given, type(block), lambda _: [])
        if command.name == "refused":
            raise WorkerError(f"the supervisor did not start this worker: {command.body['message']}", [], "supervisor")
        if command.name == "stop":
            events.phase("done", reason="stopped")
            raise SystemExit(0)
        command.answer.set_exception(WorkerError("the block has not been started yet", code="not_started"))
