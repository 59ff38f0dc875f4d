"""The environment."""

from __future__ import annotations

import asyncio
import re
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

from recipe_sdk import Environment, InfraFailure, Policy, Score, Task, setting

from . import text

HELD_OUT = 1_000_000_000  # added to the seed


@dataclass
class Settings:
    id: str = setting(doc="Environment of Gymnasium, such as FrozenLake-v1, or package:Name-v0 of an installed package")
    config: Any = setting(None, "Arguments of gymnasium.make, such as { is_slippery = false }; render_mode, too")
    seed: int = setting(0, "Task n is a reset with this plus n; all rollouts of a group begin alike", min=0)
    eval_tasks: int = setting(64, "How many seeds that training does not reach are held out", min=1)
    instructions: str = setting("", "System prompt. Default: the actions, and how to choose one")
    actions: list[str] = setting([], "Names of the actions, in order. Default: the usual ones of toy_text, or numbers")
    action_pattern: str = setting(
        "", "Regular expression: its last match, or the first group of that, names the action. Default: the last named"
    )
    observation: Literal["auto", "value"] = setting(
        "auto", "What the model reads: the environment's picture in text (ansi) where it has one, or the observation"
    )
    invalid_action: Literal["retry", "end"] = setting(
        "retry", "After an answer that names no action: it is told so and answers again, or the rollout ends"
    )
    invalid_action_reward: float = setting(0.0, "Reward of such an answer")
    reward: Literal["sum", "last"] = setting("sum", "The score: the sum of the rewards of all steps, or the last one")


class Gymnasium(Environment):
    """Environments of Gymnasium, played in text.

    Actions are discrete or text; observations are shown as text. docs/environments/gymnasium.md explains it."""

    settings: Settings
    version = "0.1.0"
    defaults = {"max_tokens": 64}

    def setup(self) -> None:
        import gymnasium
        from gymnasium import spaces

        s = self.settings
        self._pattern = re.compile(s.action_pattern, re.DOTALL) if s.action_pattern else None
        self._arguments = {"id": s.id, **(s.config or {})}
        made = gymnasium.make(**self._arguments)
        try:
            space, modes = made.action_space, made.metadata.get("render_modes", [])
            seen = str(made.observation_space)
        finally:
            made.close()
        self.log(f"{s.id}: actions {space}; observations {seen if len(seen) < 200 else seen[:200] + '…'}")
        if s.observation == "auto" and "ansi" in modes and "render_mode" not in self._arguments:
            self._arguments["render_mode"] = "ansi"
            gymnasium.make(**self._arguments).close()  # what a rollout does
        self._picture = s.observation == "auto" and self._arguments.get("render_mode") == "ansi"
        family = s.id.rpartition(":")[2].partition("-v")[0]
        self._parts = text.PARTS.get(family, ())
        self._first: int | None = None
        self._names: list[str] = []
        if isinstance(space, spaces.Discrete):
            self._first = int(space.start)
            names = s.actions or text.ACTIONS.get(family, ())
            self._names = list(names) or [str(self._first + i) for i in range(int(space.n))]
            if len(self._names) != space.n:
                raise ValueError(f"{s.id} has {space.n} actions, and actions has {len(self._names)} names")
        elif not isinstance(space, spaces.Text):
            raise ValueError(f"the actions of {s.id} are {space}; only Discrete and Text can be chosen in text")
        self._rules = (
            f"The actions: {', '.join(self._names)}. Answer with one of them."
            if self._names
            else "Your answer is the action."
        )
        self._count = 0

    def next(self) -> Task:
        self._count += 1
        return Task(data=self.settings.seed + self._count - 1)

    def skip(self, count: int) -> None:
        self._count += count

    def held_out(self) -> list[Task]:
        return [Task(data=HELD_OUT + self.settings.seed + i) for i in range(self.settings.eval_tasks)]

    async def rollout(self, task: Task, policy: Policy) -> Score:
        import gymnasium

        s = self.settings
        env = await _run(partial(gymnasium.make, **self._arguments))
        try:
            seen, _ = await _run(env.reset, seed=task.data)
            system = s.instructions or "Choose an action in each turn. " + self._rules
            start = await self._show(env, seen)
            chat = policy.chat([{"role": "system", "content": system}, {"role": "user", "content": start}])
            total, reward, invalid = 0.0, 0.0, 0
            while True:
                answer = await chat.answer()
                if answer.truncated and not answer.tokens:  # max_turns, or no room: the rewards so far count
                    break
                action = self._action(answer.text)
                if action is None:
                    reward = s.invalid_action_reward
                    total += reward
                    invalid += 1
                    if s.invalid_action == "end":
                        break
                    chat.say(f"That names no action. {self._rules}")
                    continue
                seen, given, ended, cut, _ = await _run(env.step, action)
                reward = float(given)
                total += reward
                if ended or cut:
                    break
                chat.say(await self._show(env, seen))
        finally:
            await _run(env.close)
        return Score(total if s.reward == "sum" else reward, {"invalid_actions": invalid})

    def _action(self, answer: str) -> Any:
        if self._first is None:
            found = list(self._pattern.finditer(answer)) if self._pattern else None
            if found is None:
                return answer
            return text.named_by(found[-1]) if found else None
        index = text.chosen(answer, self._pattern, self._names)
        return None if index is None else self._first + index

    async def _show(self, env: Any, seen: Any) -> str:
        if self._picture:
            return text.plain(str(await _run(env.render)))
        return text.observation(seen, self._parts)


async def _run(method: Any, /, *args: Any, **more: Any) -> Any:
    """Calls a method of Gymnasium in a thread. What it raises is the environment's failure, never the model's."""
    try:
        return await asyncio.to_thread(method, *args, **more)
    except Exception as e:
        name = getattr(method, "func", method).__qualname__
        raise InfraFailure(f"{name}: {type(e).__name__}: {e}") from e
