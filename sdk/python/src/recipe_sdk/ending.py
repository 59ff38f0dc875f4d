"""What ended a run, for the supervisor and for the log."""

from __future__ import annotations

import contextlib
import os
import sys
import traceback

from .control import Control
from .errors import WorkerError
from .events import Events
from .settings import RunSettings


def report(error: BaseException, events: Events, block: RunSettings, main: bool) -> None:
    """The event "error", from whichever rank: memory that only its own device lacks is known to nobody else. A rank on
    another machine than the supervisor's reaches only its log, which the supervisor reads."""
    if isinstance(error, WorkerError):
        record, text = error.record(), str(error)
    else:
        text = "".join(traceback.format_exception(error))
        checks: list[str] = []
        if isinstance(error, ImportError):  # checks keep the engine from starting again what lacks a package
            checks = [
                f"Is it installed for {sys.executable}? recipe init makes an environment with what the block needs.",
                "Do the versions fit each other? Take them from one installation of the trainer's package.",
            ]
        record = {"code": "missing_package" if checks else "internal", "message": f"{type(error).__name__}: {error}",
                  "checks": checks, "traceback": text}  # fmt: skip
    say(text)
    if main:
        events.emit("error", **record)
    elif int(os.environ.get("GROUP_RANK", 0)) == 0:  # torchrun's number of the machine
        own = Events(block.events_file, Control(block.control, block.control_token, 1))
        own.emit("error", **record)
        if own.control is not None:
            own.control.close()
        own.close()


def say(text: str) -> None:
    """Into the worker's log, if its disk has room: why the run ended has been told already."""
    with contextlib.suppress(OSError):
        print(text, file=sys.stderr)
