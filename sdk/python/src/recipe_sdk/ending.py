"""What ended a run, for the supervisor and for the log."""

from __future__ import annotations

import contextlib
import os
import sys
import traceback
from typing import Any

from .control import Control
from .errors import WorkerError
from .events import Events
from .fields import ConfigError
from .settings import RunSettings


def report(error: BaseException, events: Events, block: RunSettings, main: bool) -> None:
    """The event "error", from whichever rank: memory that only its own device lacks is known to nobody else. A rank on
    another machine than the supervisor's reaches only its log, which the supervisor reads."""
    record, text = described(error, block)
    say(text)
    if main:
        events.emit("error", **record)
    elif int(os.environ.get("GROUP_RANK", 0)) == 0:  # torchrun's number of the machine
        own = Events(block.events_file, Control(block.control, block.control_token, 1))
        own.emit("error", **record)
        if own.control is not None:
            own.control.close()
        own.close()


def described(error: BaseException, block: RunSettings) -> tuple[dict[str, Any], str]:
    """What the event carries, and what the log shows."""
    if isinstance(error, WorkerError):
        return error.record(), str(error)
    if isinstance(error, ConfigError):  # checks keep the engine from starting again what would fail the same way
        told = WorkerError(str(error), ["Correct it in the recipe."], "config", error.setting)
        return told.record(), str(told)
    text = "".join(traceback.format_exception(error))
    code, checks = "internal", list[str]()
    if isinstance(error, ImportError):
        code, checks = "missing_package", [
            f"Is it installed for {sys.executable}? recipe init makes an environment with what the block needs.",
            "Do the versions fit each other? Take them from one installation of the trainer's package.",
        ]  # fmt: skip
    elif "not found in the base model" in str(error) and (names := linear(block.model.path)):
        checks = [f"The model's linear layers are {', '.join(names)}."]  # peft does not say which there are
    message = f"{type(error).__name__}: {error}"
    return {"code": code, "message": message, "checks": checks, "traceback": text}, text


def linear(model: str) -> list[str]:
    """The last parts of the names of a model's linear layers but the output head, from its configuration alone; empty
    when they cannot be known."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    try:
        with torch.device("meta"):
            made = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(model))
        head = made.get_output_embeddings()
        found = (n for n, m in made.named_modules() if isinstance(m, torch.nn.Linear) and m is not head)
        return sorted({n.rpartition(".")[2] for n in found})
    except Exception:  # whatever it is, it must not hide what ended the run
        return []


def say(text: str) -> None:
    """Into the worker's log, if its disk has room: why the run ended has been told already."""
    with contextlib.suppress(OSError):
        print(text, file=sys.stderr)
