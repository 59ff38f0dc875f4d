"""The environment."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, ClassVar

from dataclasses import dataclass, field, fields

from recipe_sdk import Code, Columns, Completion, Environment, InfraFailure, Score, Task, setting
from recipe_sdk.environment.base import TimedOut
from recipe_sdk.environment.processes import Blocked, Died, ScoreFailed, default_processes

from .dataset import Row, Rows, read
from .functions import ARGUMENTS, LEFT_OUT, Given, Returned, TrainerState, awaited, callable_of, called, counted
from .functions import is_async, missing, unnamed, unwanted

_ARGUMENTS = Columns("dataset", given=ARGUMENTS, left_out=LEFT_OUT, every=True)


@dataclass
class Function:
    function: Code = setting(
        doc="A function in a Python file beside the recipe, such as rewards.py:accuracy, or in a module, such as "
        "mylib.rewards:accuracy",
        columns=_ARGUMENTS,
    )
    weight: float = setting(1.0, "What its rewards are multiplied by before they are added up")


@dataclass
class Settings:
    one_of: ClassVar = (("function", "functions"),)

    dataset: str = setting(
        doc="A file (.jsonl, .ndjson, .json, .csv, .tsv, each also as .gz, or .parquet) or "
        "a folder beside the recipe, or a name of the Hugging Face hub",
        file=True,
    )
    function: Code | None = setting(
        None,
        "The reward function, in TRL's signature: rewards.py:accuracy of a file, or mylib.rewards:accuracy of a module",
        columns=_ARGUMENTS,
    )
    functions: list[Function] = field(
        default_factory=list, metadata={"doc": "Several reward functions, added up by weight, instead of function"}
    )
    split: str = setting("train", "Split of a dataset of the hub")
    dataset_config: str = setting("", "Configuration of a dataset of the hub, such as main")
    prompt_column: str = setting(
        "prompt", "Column with the prompt: a text, sent as it is, or a list of messages",
        columns=Columns("dataset", messages=True),
    )
    expected_column: str = setting(
        "answer",
        "Column with the right answer, which is recorded with the completions; none is where it is missing",
        columns=Columns("dataset", optional=True),
    )
    system_prompt: str = setting(
        "", "Begins each conversation that has no system message. With it a text becomes the user's message"
    )
    eval_rows: int = setting(
        64, "How many rows are kept back for evaluation and never trained on", min=1, columns=Columns("dataset")
    )
    seed: int = setting(0, "Order in which the rows come; each once before any comes again")
    score_processes: int = setting(
        0,
        "Processes in which reward functions run, one call at a time in each. 0: as many as there are cores, "
        "but 4 to 16. Functions with async def share one more",
        min=0,
        unit="processes",
    )


@dataclass
class _Reward:
    """What one function gives for one completion; None: it does not apply."""

    value: float | None
    metrics: dict[str, float]


class Reward(Environment):
    """A reward function in TRL's signature, and a dataset of prompts.

    The function gets prompts, completions, completion_ids and the columns of the dataset, as lists with one element for
    each completion of a group, and returns a list of numbers. docs/environments/reward.md explains it."""

    settings: Settings
    version = "0.1.0"
    defaults = {"max_tokens": 512}
    reads = ("HF_TOKEN", "HF_*")

    def setup(self) -> None:
        s = self.settings
        if (s.function is None) == (not s.functions):
            raise ValueError('set function = "FILE.py:NAME", or functions { … } for several, and not both')
        self.setup_scoring()
        found = read(s.dataset, self.context.folder, split=s.split, config=s.dataset_config)
        rows = found.rows
        if len(rows) <= s.eval_rows:
            raise ValueError(
                f"{s.dataset} has {len(rows)} rows, of which eval_rows = {s.eval_rows} are kept back: "
                "lower eval_rows, or give more rows"
            )
        if s.prompt_column not in rows[0]:
            raise ValueError(f"{s.dataset} has no column {s.prompt_column!r}; it has {', '.join(rows[0])}")
        default = next(f.default for f in fields(s) if f.name == "expected_column")
        if s.expected_column not in ("", default) and not any(s.expected_column in row for row in rows):
            raise ValueError(f"{s.dataset} has no column {s.expected_column!r}; it has {', '.join(rows[0])}")
        self._check_calls(found)
        for n, row in enumerate(rows):
            self._check(row.get(s.prompt_column), found.place(n))
        if s.system_prompt and (own := sum(_has_system(row[s.prompt_column]) for row in rows)):
            told = "have a system message, which stays in the place of system_prompt"
            self.log(f"{own} of {len(rows)} rows {told}", "warn")
        self._random = random.Random(s.seed)
        self._held, self._rows = rows[: s.eval_rows], rows[s.eval_rows :]
        trained = {_key(row[s.prompt_column]) for row in self._rows}
        if same := sum(_key(row[s.prompt_column]) in trained for row in self._held):
            self.log(
                f"{same} of the {s.eval_rows} rows that eval_rows keeps back have a prompt that a row for training "
                "has, too: evaluations measure what was trained. Remove rows with the same prompt",
                "warn",
            )
        self._next: list[Row] = []
        self._drawn = 0

    def setup_scoring(self) -> None:
        """The functions, without the dataset."""
        s = self.settings
        named = s.functions or [Function(s.function)]  # type: ignore[arg-type]
        self._functions = [
            (callable_of(f.function.load(), name), name, f.weight)
            for f, name in zip(named, _names(named), strict=True)
        ]
        self._blocking: set[int] = set()  # async functions that hold up the event loop

    def scoring_processes(self) -> int:
        return self.settings.score_processes or default_processes()

    def _check_calls(self, found: Rows) -> None:
        """Whether each function can be called with the columns of every row."""
        first: dict[tuple[str, ...], int] = {}  # the first row with these columns
        for n, row in enumerate(found.rows):
            first.setdefault(tuple(row), n)
        for columns, n in first.items():
            where = f"the row at {found.place(n)}" if n else self.settings.dataset
            for function, name, _ in self._functions:
                if before := unnamed(function):
                    raise ValueError(
                        f"{name} takes {before[0]!r} by position only, and it is called by name. Remove the / behind it"
                    )
                if absent := missing(function, columns):
                    raise ValueError(
                        f"{name} needs {' and '.join(map(repr, absent))}, which {where} does not have as a column; it "
                        f"has {', '.join(columns)}. Besides columns a function gets {', '.join(ARGUMENTS)}"
                    )
                if refused := unwanted(function, columns):
                    of = f", with {where}" if n else ""
                    raise ValueError(
                        f"{name} does not take {', '.join(map(repr, refused))}, which it is given{of}, as by TRL: "
                        "write **kwargs behind its arguments"
                    )

    def _check(self, prompt: Any, place: str) -> None:
        """Whether a row's prompt is a text or a list of messages: else the run would lose groups later on."""
        if isinstance(prompt, str) and prompt:
            return
        turn = {"role": str, "content": (str, list)}
        if prompt and not isinstance(prompt, (str, Mapping)) and isinstance(prompt, Iterable):
            if all(isinstance(m, Mapping) and (_calls(m) or all(isinstance(m.get(k), t) for k, t in turn.items()))
                   for m in prompt):  # fmt: skip
                try:
                    [_plain(m) for m in prompt]
                except ValueError as e:
                    raise ValueError(f"{place}: {e}") from e
                return
        raise ValueError(
            f"{place}: want in column {self.settings.prompt_column!r} a text, or a "
            f'list of messages like {{"role": "user", "content": "…"}}, got {prompt!r:.120}'
        )

    def _task(self, row: Row) -> Task:
        prompt, system = row[self.settings.prompt_column], self.settings.system_prompt
        expected = row.get(self.settings.expected_column)
        if isinstance(prompt, str) and not system:
            return Task(prompt=prompt, data=row, expected=expected)
        messages = [{"role": "user", "content": prompt}] if isinstance(prompt, str) else [_plain(m) for m in prompt]
        if system and not _has_system(messages):
            messages.insert(0, {"role": "system", "content": system})
        tools, more = (_read(row.get(name)) for name in ("tools", "chat_template_kwargs"))
        return Task(messages=messages, data=row, tools=tools or None, chat_template_kwargs=more or None,
                    expected=expected)  # fmt: skip

    def next(self) -> Task:
        if not self._next:
            self._next = self._rows.copy()
            self._random.shuffle(self._next)
        self._drawn += 1
        return self._task(self._next.pop())

    async def score_group(self, task: Task, completions: list[Completion], step: int) -> list[Any]:
        """The scores of a group's completions, or what went wrong with each."""
        state = TrainerState(global_step=step, epoch=self._drawn / len(self._rows))
        # as in TRL, which decodes the tokens: with the text at which it stopped
        plain = [c.text + c.stop for c in completions]
        texts: list[Any] = [[{"role": "assistant", "content": text}] if task.messages else text for text in plain]
        for n, c in enumerate(completions):
            if c.messages:  # as in TRL, too, with turns of tools between the answers
                texts[n] = [dict(m) for m in c.messages]
        prompt: Any = list(task.messages) or task.prompt
        given = Given(prompt, texts, [list(c.tokens) for c in completions], task.data, state)
        found = await asyncio.gather(*(self._rewards(i, given) for i in range(len(self._functions))))
        return [self._total([of[n] for of in found]) for n in range(len(completions))]

    async def score(self, task: Task, completion: Completion) -> Score:
        (made,) = await self.score_group(task, [completion], 0)
        if isinstance(made, Exception):
            raise made
        score: Score = made
        return score

    def _total(self, found: list[_Reward | Exception]) -> Score | Exception:
        """The score of one completion, from what each function gave."""
        total, rewards, metrics = 0.0, {}, {}
        for (_, name, weight), of in zip(self._functions, found, strict=True):
            if isinstance(of, Exception):
                return of
            metrics.update(of.metrics)
            if of.value is not None:
                total += weight * of.value
                rewards[f"reward/{name}"] = of.value
        if not rewards:
            # Without the prompt, which whoever reports it knows: equal reasons are counted together.
            return _raised(ValueError(why := "every reward function returned None"), why)
        return Score(total, metrics | rewards)

    async def _rewards(self, index: int, given: Given) -> list[_Reward | Exception]:
        """What one function gives for each completion. Where it fails with all of them together, it is called with each
        by itself: one completion does not decide for the others."""
        try:
            made = await self._called(index, given)
            if made.wrong:
                counted_as = f"{self._functions[index][1]} returned no list of the group's length"
                return [_raised(TypeError(made.wrong), counted_as) for _ in given.completions]
            return [_Reward(value, made.metrics) for value in made.values]
        except (ScoreFailed, InfraFailure, TimedOut) as e:
            name, count = self._functions[index][1], len(given.completions)
            if count > 1:
                if isinstance(e, TimedOut):
                    self.log(f"{name} took longer than score_timeout for the {count} completions of a group; it is "
                             "called with each by itself", "warn")  # fmt: skip
                alone = await asyncio.gather(*(self._rewards(index, given.alone(n)) for n in range(count)))
                return [one for (one,) in alone]
            if isinstance(e, TimedOut):
                e = TimedOut(e.limit, f"{name} with the completion {_text(given.completions[0])[:200]!r}")
            if isinstance(e, Died):
                e = Died(f"{e}, in a call of {name} with the completion {_text(given.completions[0])[:200]!r}")
            return [e]

    async def _called(self, index: int, given: Given) -> Returned:
        """Calls a function in another process, within its time."""
        scorers, limit = self.context.scorers, self.context.score_timeout
        if scorers is None:  # in a test
            return await asyncio.to_thread(self.call_function, index, given)
        function, name, _ = self._functions[index]
        if is_async(function) and index not in self._blocking:
            try:
                with self.context.slow.call(name, lambda: _these(given)) as started:
                    started()
                    made: Returned = await scorers.call_together("await_function", index, given, limit=limit)
                return made
            except Blocked:
                if index not in self._blocking:
                    self._blocking.add(index)
                    self.log(f"async functions of this block, such as {name}, hold up the event loop that they share: "
                             f"from now on one call of {name} runs in a process at a time", "warn")  # fmt: skip
        with self.context.slow.call(name, lambda: _these(given)) as started:
            made = await scorers.call("call_function", index, given, limit=limit, started=started)
        return made

    def call_function(self, index: int, given: Given) -> Returned:
        """Calls a function in this process."""
        function, name, _ = self._functions[index]
        return called(function, name, given)

    async def await_function(self, index: int, given: Given) -> Returned:
        """Calls an asynchronous function in this process."""
        function, name, _ = self._functions[index]
        return await awaited(function, name, given)

    def held_out(self) -> list[Task]:
        return [self._task(row) for row in self._held]


def _raised(error: Exception, counted_as: str) -> Exception:
    """An error as if it had been raised: what has no traceback is taken for a failure of something else."""
    try:
        raise counted(error, counted_as)
    except type(error) as e:
        return e


def _names(functions: list[Function]) -> list[str]:
    """Of each function the name of its metric: its own, and with a number from the second of another file on that is
    called so."""
    files: dict[str, list[Path | str]] = {}  # of each name
    out = []
    for f in (given.function for given in functions):
        known, file = files.setdefault(f.function, []), f.module or f.original or f.file
        if file not in known:
            known.append(file)
        number = known.index(file) + 1
        out.append(f.function if number == 1 else f"{f.function}_{number}")
    return out


def _calls(message: Mapping[str, Any]) -> bool:
    """Whether a message is a turn of calls of tools, which needs no content."""
    return message.get("role") == "assistant" and bool(message.get("tool_calls")) and not message.get("content")


def _key(prompt: Any) -> str:
    """A prompt as a text, to find rows with the same one."""
    return prompt if isinstance(prompt, str) else json.dumps(prompt, sort_keys=True, default=str)


def _has_system(prompt: Any) -> bool:
    """Whether a conversation begins with a system message."""
    return not isinstance(prompt, str) and bool(prompt) and prompt[0].get("role") in ("system", "developer")


def _plain(message: Mapping[str, Any]) -> Mapping[str, Any]:
    """A message whose content is one text: parts of text are put together."""
    # columns of one type (Parquet) have every key in each message
    message = {key: value for key, value in message.items() if value is not None}
    content = message.setdefault("content", "")
    if isinstance(content, str):
        return message
    if wrong := [part for part in content if not isinstance(part, Mapping) or part.get("type") != "text"]:
        raise ValueError(f"a message has a part that is no text, and only texts can be sent: {wrong[0]!r:.80}")
    return {**message, "content": "".join(part["text"] for part in content)}


def _read(column: Any) -> Any:
    """A column with a list or an object, or with its JSON, as columns of one type must have it."""
    return json.loads(column) if isinstance(column, str) and column else column


def _these(given: Given) -> str:
    """The completions of a call, for people."""
    first, count = repr(_text(given.completions[0])[:200]), len(given.completions)
    if count == 1:
        return f"the completion {first}"
    return f"the {count} completions of a group, of which the first is {first}"


def _text(completion: Any) -> str:
    """The text of a completion as a function gets it."""
    return completion if isinstance(completion, str) else str(completion[-1]["content"])
