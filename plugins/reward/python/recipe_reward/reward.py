"""The environment."""

from __future__ import annotations

import inspect
import math
import random
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from dataclasses import dataclass, field

from recipe_sdk import Code, Completion, Environment, Score, Task, setting

from .dataset import Row, read


@dataclass
class Function:
    function: Code = setting(doc="A function in a Python file beside the recipe, such as rewards.py:accuracy")
    weight: float = setting(1.0, "What its rewards are multiplied by before they are added up")


@dataclass
class Settings:
    dataset: str = setting(
        doc="A file (.jsonl, .json, .csv, .parquet) or a folder beside the recipe, or a name of the Hugging Face hub"
    )
    function: Code | None = setting(None, "The reward function, such as rewards.py:accuracy, in TRL's signature")
    functions: list[Function] = field(
        default_factory=list, metadata={"doc": "Several reward functions, added up by weight, instead of function"}
    )
    split: str = setting("train", "Split of a dataset of the hub")
    dataset_config: str = setting("", "Configuration of a dataset of the hub, such as main")
    prompt_column: str = setting("prompt", "Column with the prompt: a text, sent as it is, or a list of messages")
    system_prompt: str = setting("", "Begins each conversation. With it a text becomes the user's message")
    eval_rows: int = setting(64, "How many rows are kept back for evaluation and never trained on", min=1)
    seed: int = setting(0, "Order in which the rows come; each once before any comes again")


class Reward(Environment):
    """A reward function in TRL's signature, and a dataset of prompts.

    The function gets prompts, completions, completion_ids and the columns of the dataset, as lists of one element, and
    returns a list of one number. docs/environments/reward.md explains it."""

    settings: Settings
    version = "0.1.0"
    defaults = {"max_tokens": 512}
    reads = ("HF_TOKEN", "HF_*")

    def setup(self) -> None:
        s = self.settings
        if (s.function is None) == (not s.functions):
            raise ValueError('set function = "FILE.py:NAME", or functions { … } for several, and not both')
        named = s.functions or [Function(s.function)]  # type: ignore[arg-type]
        self._functions = [(f.function.load(), name, f.weight) for f, name in zip(named, _names(named), strict=True)]
        rows = read(s.dataset, self.context.folder, split=s.split, config=s.dataset_config)
        if len(rows) <= s.eval_rows:
            raise ValueError(
                f"{s.dataset} has {len(rows)} rows, of which eval_rows = {s.eval_rows} are kept back: "
                "lower eval_rows, or give more rows"
            )
        if s.prompt_column not in rows[0]:
            raise ValueError(f"{s.dataset} has no column {s.prompt_column!r}; it has {', '.join(rows[0])}")
        for n, row in enumerate(rows, 1):
            self._check(row.get(s.prompt_column), n)
        self._random = random.Random(s.seed)
        self._held, self._rows = rows[: s.eval_rows], rows[s.eval_rows :]
        self._next: list[Row] = []

    def _check(self, prompt: Any, number: int) -> None:
        """Whether a row's prompt is a text or a list of messages: else the run would lose groups later on."""
        if isinstance(prompt, str) and prompt:
            return
        turn = {"role": str, "content": str}
        if prompt and not isinstance(prompt, (str, Mapping)) and isinstance(prompt, Iterable):
            if all(isinstance(m, Mapping) and all(isinstance(m.get(k), t) for k, t in turn.items()) for m in prompt):
                return
        raise ValueError(
            f"row {number} of {self.settings.dataset}: want in column {self.settings.prompt_column!r} a text, or a "
            f'list of messages like {{"role": "user", "content": "…"}}, got {prompt!r:.120}'
        )

    def _task(self, row: Row) -> Task:
        prompt, system = row[self.settings.prompt_column], self.settings.system_prompt
        if isinstance(prompt, str) and not system:
            return Task(prompt=prompt, data=row)
        messages = [{"role": "user", "content": prompt}] if isinstance(prompt, str) else list(prompt)
        if system:
            messages.insert(0, {"role": "system", "content": system})
        return Task(messages=messages, data=row)

    def next(self) -> Task:
        if not self._next:
            self._next = self._rows.copy()
            self._random.shuffle(self._next)
        return self._task(self._next.pop())

    async def score(self, task: Task, completion: Completion) -> Score:
        prompt: Any = list(task.messages) or task.prompt
        answer: Any = [{"role": "assistant", "content": completion.text}] if task.messages else completion.text
        columns = {name: [value] for name, value in task.data.items() if name not in ("prompt", "completion")}
        total = 0.0
        metrics: dict[str, float] = {}
        rewards: dict[str, float] = {}
        for function, name, weight in self._functions:
            given = function(
                prompts=[prompt],
                completions=[answer],
                completion_ids=[list(completion.tokens)],
                trainer_state=None,
                log_extra=_ignore,
                log_metric=metrics.__setitem__,
                **columns,
            )
            value = _single(await given if inspect.isawaitable(given) else given, name)
            if value is not None:
                total += weight * value
                rewards[f"reward/{name}"] = value
        if not rewards:
            raise ValueError(f"every reward function returned None for the prompt {str(prompt)[:80]!r}")
        return Score(total, metrics | rewards if self.settings.functions else metrics)

    def held_out(self) -> list[Task]:
        return [self._task(row) for row in self._held]


def _names(functions: list[Function]) -> list[str]:
    """Of each function the name of its metric: its own, and with a number from the second of another file on that is
    called so."""
    files: dict[str, list[Path]] = {}  # of each name
    out = []
    for f in (given.function for given in functions):
        known, file = files.setdefault(f.function, []), f.original or f.file
        if file not in known:
            known.append(file)
        number = known.index(file) + 1
        out.append(f.function if number == 1 else f"{f.function}_{number}")
    return out


def _ignore(*_: Any, **__: Any) -> None:
    """log_extra of TRL, columns of its table of completions: it is not shown."""


def _single(given: Any, name: str) -> float | None:
    """The one reward; None says that the function does not apply."""
    try:
        values = list(given)
    except TypeError:
        raise TypeError(f"{name} must return a list with one reward for each completion, got {given!r}") from None
    if len(values) != 1:
        raise ValueError(f"{name} must return one reward for each completion: one completion, {len(values)} rewards")
    if values[0] is None:
        return None
    value = float(values[0])
    if not math.isfinite(value):
        raise ValueError(f"{name} returned {value}, which is no finite number")
    return value
