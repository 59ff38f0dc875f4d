"""A worker that is prepared: how far it goes before its block is started."""

from __future__ import annotations

from concurrent.futures import Future
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest

from recipe_sdk import settings, stage
from recipe_sdk.control import Command


@dataclass
class Supervisor:
    """Answers each request with what comes next."""

    answers: list[Command]
    asked: list[tuple[str, dict[str, Any]]] = field(default_factory=list)

    def ask(self, name: str, **params: Any) -> None:
        self.asked.append((name, params))

    def next(self, _: float) -> Command | None:
        return self.answers.pop(0) if self.answers else None


def prepared() -> settings.Settings:
    given = {"model": {"path": "m"}, "checkpoint_dir": "/c", "steps": 1, "prepare": "host", "data": {"url": ""}}
    return settings.from_dict(given, settings.Settings, lambda _: [])


EVENTS = SimpleNamespace(phase=lambda *_, **__: None)


def start(url: str = "http://h", **more: Any) -> Command:
    return Command("start", {"settings": {"data": {"url": url}}, **more}, Future())


def test_a_worker_goes_on_beside_inference():
    supervisor = Supervisor([Command("start", {"settings": {}, "prepare": "beside"}, Future()), start()])
    block = stage.started(prepared(), supervisor, EVENTS, beside=True)
    assert (block.prepare, block.data.url, block.model.path) == (stage.BESIDE, "", "m")
    block = stage.started(block, supervisor, EVENTS)
    assert (block.prepare, block.data.url) == ("", "http://h")
    assert supervisor.asked == [("prepared", {"beside": True}), ("prepared", {})]


@pytest.mark.parametrize("beside", [False, True])
def test_a_worker_may_be_started_at_once(beside):
    block = stage.started(prepared(), Supervisor([start()]), EVENTS, beside=beside)
    assert (block.prepare, block.data.url) == ("", "http://h")


def test_a_worker_that_cannot_go_on_is_restarted():
    supervisor = Supervisor([start(prepare="beside")])
    assert stage.started(prepared(), supervisor, EVENTS).prepare == ""
    assert supervisor.asked == [("prepared", {})]
