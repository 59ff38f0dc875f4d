"""What is recorded of a task, so that its completions can be scored again."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from recipe_sdk import Completion, Environment, Policy, Task
from recipe_sdk.environment.serve import DATA, Server


class Recorded(Environment):
    def next(self) -> Task:
        return Task("a?", data={"letter": "a", "limits": [1, 2.5, None, True]})

    def score(self, task: Task, completion: Completion) -> float:
        return float(completion.text.count(task.data["letter"]))


class Talks(Environment):
    def next(self) -> Task:
        return Task("a?", data=1)

    async def rollout(self, task: Task, policy: Policy) -> float:
        return 1.0


@pytest.mark.parametrize(
    "data, recorded",
    [
        ({"a": [1, "ü", None]}, True), (None, True), (7, True), ((1, 2), False), ({1: "a"}, False),
        ({"a": (1,)}, False),
        (float("nan"), False), ({"a": Path("x")}, False), ("x" * DATA, False),
    ],
)  # fmt: skip
def test_data_that_json_holds_is_recorded(data: Any, recorded: bool) -> None:
    server = Server(Recorded)
    server.environment = Recorded()
    made = server.record(Task("a?", data=data))
    assert made.get("data", "none") == data if recorded else made["no_record"].startswith("its data ")


def test_a_rollout_is_not_recorded() -> None:
    assert Server(Talks).record(Task("a?", data=1)) == {}


class Dumps(Recorded):
    def next(self) -> Task:
        return Task("a?", data={"letter": "a", "judge": object()})

    def dump_data(self, data: Any) -> Any:
        return data["letter"]

    def load_data(self, data: Any) -> Any:
        return {"letter": data, "judge": object()}


@pytest.mark.parametrize("cls", [Recorded, Dumps])
def test_a_recorded_task_is_scored_as_a_new_one(cls: type[Environment]) -> None:
    async def run() -> list[Any]:
        server = Server(cls)
        server.loop, server.one_next = asyncio.get_running_loop(), asyncio.Lock()
        await server.on_open({}, "recorded", ".", ".")
        drawn = await server.on_next()
        again = await server.on_restore("a?", [], "", drawn["data"])
        completions = [{"text": text, "finish": "stop"} for text in ("banana", "b")]
        return [await server.on_score_group(task["task"], completions) for task in (drawn, again)]

    drawn, again = asyncio.run(run())
    assert drawn == again and [one["score"] for one in again] == [3.0, 0.0]
