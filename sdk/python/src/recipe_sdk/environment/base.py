"""What an author writes: a class that derives from Environment."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from .slow import Slow, unwatched

Message = Mapping[str, Any]
"""One turn of a conversation: {"role": "user", "content": "…"}."""


@dataclass
class Task:
    """One problem. Exactly one of prompt and messages is set; data is the author's own (the right answer, …)."""

    prompt: str = ""  # sent as it is
    messages: Sequence[Message] = ()  # sent as a conversation: the server applies the model's chat template
    data: Any = None
    tools: Sequence[Mapping[str, Any]] | None = None  # JSON schemas of functions, for the chat template
    chat_template_kwargs: Mapping[str, Any] | None = None  # such as {"enable_thinking": False}
    expected: Any = None  # the right answer, for people: recorded with the completions. What is no text becomes JSON


@dataclass(frozen=True)
class Completion:
    """One answer of the model."""

    text: str
    finish: str  # "stop": it ended by itself; "length": it was cut off at max_tokens
    tokens: Sequence[int] = ()  # without the prompt
    logprobs: Sequence[float] = ()
    stop: str = ""  # the stop text that ended it, which is not in text
    # what followed the task's conversation, where recorded rollouts of several turns are scored again: text is the last
    # answer; empty: text is all
    messages: Sequence[Mapping[str, Any]] = ()

    @property
    def truncated(self) -> bool:
        """Whether it was cut off at max_tokens."""
        return self.finish == "length"


@dataclass(frozen=True)
class Score:
    """A score with numbers that say more, such as its parts: Score(0.8, {"right": 1, "brief": 0.3}).

    Only value is trained on. Of the others the mean over completions is reported as metrics/NAME; `recipe env try` and
    `recipe evaluate` show them. Names are few and the same for all tasks."""

    value: float
    metrics: Mapping[str, float] = field(default_factory=dict)


class InfraFailure(Exception):
    """Raise it when something that the environment needs is away (a sandbox, a judge, a network): the score is unknown,
    and the completion is left out of its group and counted as `infra_failed` instead of being scored low."""


class TimedOut(Exception):
    """A score took longer than it may, and was ended."""

    _recipe_counted_as = "score_timeout"

    def __init__(self, limit: float, what: str = "score") -> None:
        super().__init__(f"{what} was not done after score_timeout = {limit:g}s, and was ended")
        self.limit = limit


class Raised(Exception):
    """The author's code raised its cause, which no future can carry, or which would end this process."""


def canceled() -> bool:
    """Whether the running task was asked to end. Else a CancelledError comes of the author's code. Python 3.10 does not
    tell them apart."""
    return getattr(asyncio.current_task(), "cancelling", lambda: 1)() > 0


def _silent(level: str, message: str) -> None:
    """What log does before the environment is opened."""


@dataclass
class Context:
    """What an environment is opened with."""

    name: str = "environment"  # under which it registers: the last part of the block's address
    folder: Path = field(default_factory=Path)  # of the recipe: relative paths of a recipe count from it
    state: Path = field(default_factory=Path)  # the block's own folder, for what it writes
    log: Callable[[str, str], None] = _silent
    score_timeout: float = 120.0  # seconds that one score may take; 0: no limit
    scorers: Any = None  # the processes in which score runs; None: it runs in this one
    slow: Slow = field(default_factory=unwatched)  # names calls that take long


class Environment:
    """Derive from it and write `next` and `score`. Each method may be `async def`.

    For several turns, mark methods that the model may call with `@tool`, or write `rollout(self, task, policy)`, which
    talks to the policy as often as it likes and returns the score.

    `next` is called by one caller at a time, `score` by many at once: in threads, or as tasks of one event loop when it
    is asynchronous. Annotate `settings` with a dataclass or a pydantic model to have attributes of your own.
    """

    settings: Any = None
    """Of the type that the class annotates; the block's attributes."""

    defaults: ClassVar[Mapping[str, Any]] = {}
    """Other defaults for attributes that every environment has: {"group_size": 16, "max_tokens": 8}."""

    version: ClassVar[str] = "0.1.0"
    """A semantic version of the environment."""

    workers: ClassVar[int] = 32
    """Threads in which methods run that are not asynchronous."""

    processes: ClassVar[int] = 0
    """Processes in which `score` runs, where it computes much: Python's threads share one core. Each makes the
    environment anew and calls `setup`; `Task.data` is pickled, and what `score` changes of self stays in its process.
    0: `score` runs beside the other methods."""

    reads: ClassVar[Sequence[str]] = ()
    """Environment variables that it needs beyond those that every program gets: ("HF_TOKEN", "MYTOOL_*")."""

    context: Context = Context()

    def setup(self) -> Awaitable[None] | None:
        """Loads data and opens connections, once, before anything else is called. settings and context are set."""
        return None

    def next(self) -> Task | Awaitable[Task | None] | None:
        """The next task. None says that there are no more.

        A block that goes on after a stop or a crash calls next for the tasks that the trainer has used and drops them:
        an order that depends on a seed goes on where it was. Write `skip(self, count)` where that can be done faster,
        or does nothing because you keep the place yourself."""
        raise NotImplementedError("an environment needs a method next")

    def score(self, task: Task, completion: Completion) -> float | Score | Awaitable[float | Score]:
        """How good a completion is; higher is better. An exception leaves this completion out of its group, and so does
        a score that takes longer than score_timeout. A Score has metrics, which are reported and not trained on."""
        raise NotImplementedError("an environment needs a method score")

    def setup_scoring(self) -> Awaitable[None] | None:
        """What a process that scores needs instead of setup (`processes`). Default: setup."""
        return self.setup()

    def scoring_processes(self) -> int:
        """How many processes score, as the settings have it. Default: processes."""
        return self.processes

    def dump_data(self, data: Any) -> Any:
        """What is recorded of a task's data, so that recorded completions can be scored again: something that JSON can
        hold. Default: the data itself."""
        return data

    def load_data(self, data: Any) -> Any:
        """A task's data again, from what dump_data gave."""
        return data

    def held_out(self) -> Sequence[Task] | Awaitable[Sequence[Task]]:
        """Tasks that are never trained on, always in the same order; `recipe evaluate` asks them."""
        return ()

    def close(self) -> Awaitable[None] | None:
        """Releases what setup opened."""
        return None

    def log(self, message: str, level: str = "info") -> None:
        """Writes one line to the block's log. level is debug, info, warn or error."""
        self.context.log(level, message)
