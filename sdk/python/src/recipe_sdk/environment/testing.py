"""Runs an environment against a fake policy, without recipe, a model or a network. `recipe_sdk.testing` has its names.

In a test:

    pytest_plugins = ["recipe_sdk.testing"]  # in conftest.py: brings the fixture run_environment

    def test_right_answers_score_higher(run_environment):
        good, bad = run_environment(Words, {"letter": "a"}, answers=["aaaa", "zzzz"], tasks=1)
        assert good.reward > bad.reward
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .base import Completion, Context, Environment, Message, Raised, Task
from .load import settings_of
from .policy import Policy
from .serve import Server
from .settings import build

Answers = Sequence[str] | Callable[[list[Message]], str]
"""What the fake policy says: texts, one after the other and then again, or a function of the conversation."""


@dataclass
class Played:
    """One rollout of a task."""

    task: Task
    rewards: dict[str, float]  # by agent; "" where there is one
    conversations: dict[str, list[Message]]
    completions: dict[str, list[Completion]]
    advantages: dict[str, Sequence[Sequence[float]] | None] = field(default_factory=dict)
    metrics: dict[str, Mapping[str, float]] = field(default_factory=dict)  # by agent

    @property
    def reward(self) -> float:
        """Of the only agent."""
        (reward,) = self.rewards.values()
        return reward


class FakePolicy:
    """Answers with texts that the test gives; a token is a byte, and its log-probability -1."""

    def __init__(self, answers: Answers, max_tokens: int = 512, max_turns: int = 16) -> None:
        self.answers, self.max_tokens, self.max_turns = answers, max_tokens, max_turns
        self.said = 0

    def complete(self, conversation: list[Message], max_tokens: int = 0) -> Completion:
        """The next answer."""
        text = self.answers(conversation) if callable(self.answers) else self.answers[self.said % len(self.answers)]
        self.said += 1
        tokens = list(text.encode())
        most = max_tokens or self.max_tokens
        finish = "length" if len(tokens) > most else "stop"
        return Completion(
            bytes(tokens[:most]).decode(errors="ignore"), finish, tokens[:most], [-1.0] * len(tokens[:most])
        )


def run(
    cls: type[Environment], settings: Mapping[str, Any] | None = None, *, answers: Answers, tasks: int = 4,
    rollouts: int = 0, held_out: bool = False, max_tokens: int = 0, max_turns: int = 0, state: Path | None = None,
    skip: int = 0,
) -> list[Played]:  # fmt: skip
    """Makes rollouts of an environment: of each of so many tasks as many as there are answers (rollouts says
    otherwise), in order. settings are the block's attributes, held_out takes the tasks of that set. skip leaves so many
    tasks out first, as a block does that goes on after a stop. An exception of the environment is raised as it is; a
    reward that is no finite number is an error."""
    most = max_tokens or int(cls.defaults.get("max_tokens", 512))
    policy = FakePolicy(answers, most, max_turns or int(cls.defaults.get("max_turns", 16)))
    each = rollouts or (1 if callable(answers) else len(answers))
    try:
        return asyncio.run(_run(cls, dict(settings or {}), policy, tasks, each, held_out, skip, state or Path()))
    except Raised as e:
        told = e.__cause__ or e
    raise told


async def _run(
    cls: type[Environment],
    settings: dict[str, Any],
    policy: FakePolicy,
    tasks: int,
    each: int,
    held_out: bool,
    skip: int,
    state: Path,
) -> list[Played]:
    server = Server(cls)
    server.loop, server.one_next = asyncio.get_running_loop(), asyncio.Lock()
    context = Context("test", Path(), state, lambda level, text: print(f"{level}: {text}"))
    await server.open(context, build(settings_of(cls), settings))
    out: list[Played] = []
    try:
        if skip:
            await server.on_skip(skip)
        given = (await server.on_held_out())[:tasks] if held_out else []
        while len(given) < tasks and not held_out:
            found = await server.on_next()
            if found is None:
                break
            given.append(found)
        for found in given:
            for _ in range(each):
                out.append(await _play(server, found["task"], policy))
            await server.on_release(found["task"])
    finally:
        await server.on_close()
        server.pool.shutdown(wait=False)
    return out


async def _play(server: Server, number: int, fake: FakePolicy) -> Played:
    task = server.tasks[number]
    if not server.rolls_out:
        conversation: list[Message] = [*task.messages] or [{"role": "user", "content": task.prompt}]
        made = fake.complete(conversation)
        answer = {"text": made.text, "finish": made.finish, "tokens": made.tokens, "logprobs": made.logprobs}
        scored = await server.on_score(number, answer)
        conversation.append({"role": "assistant", "content": made.text})
        return Played(task, {"": scored["score"]}, {"": conversation}, {"": [made]}, {}, {"": scored["metrics"]})

    async def ask(params: dict[str, Any]) -> dict[str, Any]:
        chat = policy.chats[params["agent"]]
        if len(chat.completions) >= fake.max_turns:
            return {"text": "", "finish": "length", "tokens": [], "logprobs": []}
        if not params["messages"] and not params["prompt"]:
            raise ValueError("the model got no message since its last answer; say something first")
        made = fake.complete(list(chat.messages), params["max_tokens"])
        return {"text": made.text, "finish": made.finish, "tokens": made.tokens, "logprobs": made.logprobs}

    policy = Policy(ask, server.loop)
    for settled in await server.play(task, policy):
        if settled["score"] is None:
            raise ValueError(f"the conversation of agent {settled['agent']!r} has no score")
    chats = policy.chats.values()
    return Played(
        task, {c.agent: _finite(c.reward, c.agent) for c in chats}, {c.agent: list(c.messages) for c in chats},
        {c.agent: list(c.completions) for c in chats}, {c.agent: c.advantages for c in chats},
        {c.agent: c.metrics for c in chats},
    )  # fmt: skip


def _finite(reward: float | None, agent: str) -> float:
    if reward is None or not math.isfinite(reward):
        raise ValueError(f"the reward of agent {agent!r} is {reward}, which is no finite number")
    return reward
