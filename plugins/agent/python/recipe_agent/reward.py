"""Scores what a program has done by the user's function."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from recipe_sdk import Code, Environment, Score, setting
from recipe_sdk.environment.processes import default_processes

#: What a function may take, by name.
GIVEN = ("task", "folder", "transcript", "exit_code", "metrics")


@dataclass
class Settings:
    reward: Code = setting(doc="The reward function")


class Reward(Environment):
    """A function that scores a rollout."""

    settings: Settings
    version = "0.1.0"

    def setup(self) -> None:
        self.setup_scoring()

    def setup_scoring(self) -> None:
        code = self.settings.reward
        self._function, self._name = code.load(), code.function
        if not callable(self._function):
            raise TypeError(f"{self._name} is {type(self._function).__name__}, and nothing that can be called")
        self._takes = _taken(self._function, self._name)

    def scoring_processes(self) -> int:
        return default_processes()

    def judge(self, made: dict[str, Any]) -> Score:
        """The score of a rollout: of a number, of a number with metrics, or of a Score."""
        made = {**made, "folder": Path(made["folder"])}
        found = self._function(**{name: made[name] for name in self._takes})
        if inspect.isawaitable(found):
            found = asyncio.run(_awaited(found))
        if isinstance(found, tuple) and len(found) == 2 and isinstance(found[1], dict):
            found = Score(*found)
        if isinstance(found, Score):
            return found
        if hasattr(found, "__float__"):
            return Score(float(found))
        raise TypeError(f"{self._name} returned {found!r:.80}; expected a number, or a number and a dict of metrics")


def _taken(function: Any, name: str) -> tuple[str, ...]:
    """Which of GIVEN a function is called with."""
    parameters = inspect.signature(function).parameters.values()
    if any(p.kind is inspect.Parameter.VAR_KEYWORD for p in parameters):
        return GIVEN
    named = {p.name: p for p in parameters if p.kind is not inspect.Parameter.POSITIONAL_ONLY}
    unknown = [n for n, p in named.items() if n not in GIVEN and p.default is p.empty
               and p.kind is not inspect.Parameter.VAR_POSITIONAL]  # fmt: skip
    unknown += [p.name for p in parameters if p.kind is inspect.Parameter.POSITIONAL_ONLY and p.default is p.empty]
    if unknown:
        raise TypeError(f"{name} needs {' and '.join(map(repr, unknown))}; it may take {', '.join(GIVEN)} by name")
    return tuple(n for n in GIVEN if n in named)


async def _awaited(found: Awaitable[Any]) -> Any:
    return await found
