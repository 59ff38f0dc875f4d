"""Calls reward functions as TRL's GRPOTrainer calls them, and reads what they return."""

from __future__ import annotations

import asyncio
import functools
import inspect
import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from recipe_sdk.environment.load import COUNTED_AS

#: Columns that TRL does not pass on.
LEFT_OUT = ("prompt", "completion", "completion_ids")
#: Arguments that each function gets besides columns. They win over a column of that name.
ARGUMENTS = ("prompts", "completions", "completion_ids", "trainer_state", "log_extra", "log_metric")

LARGEST = 1e15  # of a reward, as the trajectory API bounds scores

Values = Sequence["float | None"]


@dataclass
class TrainerState:
    """What is known here of transformers.TrainerState, under its names; 0: not known."""

    global_step: int = 0  # optimizer steps that the trainer has made
    epoch: float = 0.0  # how often all rows of the dataset have come, as a fraction
    max_steps: int = 0
    num_train_epochs: int = 0
    logging_steps: int = 0
    eval_steps: int = 0
    save_steps: int = 0
    log_history: list[dict[str, float]] = field(default_factory=list)
    best_metric: float | None = None
    is_local_process_zero: bool = True
    is_world_process_zero: bool = True


@dataclass
class Given:
    """What a reward function is called with: completions of one row."""

    prompt: Any
    completions: list[Any]
    ids: list[list[int]]
    row: dict[str, Any]
    state: TrainerState

    def alone(self, index: int) -> Given:
        """One of the completions by itself."""
        return Given(self.prompt, [self.completions[index]], [self.ids[index]], self.row, self.state)


@dataclass
class Returned:
    """What a reward function returned, and what it has logged."""

    values: Values
    metrics: dict[str, float]
    wrong: str = ""  # why it is no list with one element for each completion; there are no values


class WrongShape(Exception):
    """A result that is no list with one element for each completion. It is the fault of no single completion: a call
    with each by itself could return a list that fits by chance."""


def callable_of(found: Any, name: str) -> Any:
    """What a name of the user's is called as: a function, an object with __call__, or one of a class of these."""
    if inspect.isclass(found):
        try:
            found = found()
        except TypeError as e:
            raise TypeError(
                f"the class {name} cannot be made without arguments ({e}); write an object beside it, as in "
                f"scored = {name}(…), and name that"
            ) from e
    if not callable(found):
        raise TypeError(f"{name} is {_shown(found)}, and nothing that can be called; name a function, an object or a "
                        "class with __call__")  # fmt: skip
    return found


def is_async(function: Any) -> bool:
    """Whether calling it gives a coroutine."""
    while isinstance(function, functools.partial):
        function = function.func
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(type(function).__call__)


def arguments(given: Given, metrics: dict[str, float]) -> dict[str, Any]:
    """The keyword arguments, each a list with one element for each completion."""
    count = len(given.completions)
    columns = {name: [value] * count for name, value in given.row.items() if name not in LEFT_OUT + ARGUMENTS}
    return {
        "prompts": [given.prompt] * count, "completions": list(given.completions), "completion_ids": given.ids,
        "trainer_state": given.state, "log_extra": _ignore, "log_metric": metrics.__setitem__, **columns,
    }  # fmt: skip


def called(function: Any, name: str, given: Given) -> Returned:
    """Calls a function outside of any event loop."""
    metrics: dict[str, float] = {}
    with _form(given):
        result = function(**arguments(given, metrics))
    if inspect.isawaitable(result):

        async def wait() -> Any:
            return await result

        with _form(given):
            result = asyncio.run(wait())
    return _returned(result, name, given, metrics)


async def awaited(function: Any, name: str, given: Given) -> Returned:
    """Calls an asynchronous function."""
    metrics: dict[str, float] = {}
    with _form(given):
        result = await function(**arguments(given, metrics))
    return _returned(result, name, given, metrics)


# What Python says when a text is taken for a list of messages, and the other way round.
_TEXTS = ("string indices must be integers", "'str' object has no attribute", "string index out of range")
_LISTS = ("'list' object has no attribute", "'dict' object has no attribute", "expected string or bytes-like object")


@contextmanager
def _form(given: Given) -> Iterator[None]:
    """Adds the form of completions to an error that comes of the other one."""
    try:
        yield
    except (TypeError, AttributeError, IndexError) as e:
        texts = isinstance(given.completions[0], str)
        if any(part in str(e) for part in (_TEXTS if texts else _LISTS)):
            form = (
                "completions are texts here, because the prompt is one; they are lists of messages where it is a list"
                if texts
                else 'a completion is a list of messages here, because the prompt is one: its text is [0]["content"]'
            )
            e.args = (f"{e}; {form}",)
        raise


def _returned(result: Any, name: str, given: Given, metrics: dict[str, float]) -> Returned:
    try:
        return Returned(values_of(result, name, len(given.completions)), metrics)
    except WrongShape as e:
        return Returned([], metrics, wrong=str(e))


def missing(function: Any, columns: Sequence[str]) -> list[str]:
    """The arguments that a function needs and that no column gives; none where its signature is not known."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return []
    kinds = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    given = {*columns}.difference(LEFT_OUT).union(ARGUMENTS)
    return [p.name for p in parameters if p.kind in kinds and p.default is p.empty and p.name not in given]


def unnamed(function: Any) -> list[str]:
    """The arguments that a function needs and that cannot be given by name; none where its signature is not known."""
    try:
        parameters = inspect.signature(function, follow_wrapped=False).parameters.values()
    except (TypeError, ValueError):
        return []
    return [p.name for p in parameters if p.kind is inspect.Parameter.POSITIONAL_ONLY and p.default is p.empty]


def unwanted(function: Any, columns: Sequence[str]) -> list[str]:
    """What a function is given and does not take; none where its signature is not known. A decorator takes what its own
    function takes, whatever functools.wraps tells of it."""
    try:
        parameters = inspect.signature(function, follow_wrapped=False).parameters.values()
    except (TypeError, ValueError):
        return []
    if any(p.kind is inspect.Parameter.VAR_KEYWORD for p in parameters):
        return []
    taken = {p.name for p in parameters if p.kind is not inspect.Parameter.POSITIONAL_ONLY}
    given = [*ARGUMENTS, *(c for c in columns if c not in LEFT_OUT + ARGUMENTS)]
    return [name for name in given if name not in taken]


def _ignore(*_: Any, **__: Any) -> None:
    """log_extra of TRL, columns of its table of completions: it is not shown."""


def values_of(result: Any, name: str, count: int) -> list[float | None]:
    """The rewards that a function has returned: a list with a number, or None, for each completion."""
    wanted = f"{name} must return a list with one number for each completion, or None where it does not apply"
    without = getattr(result, "shape", None) == ()  # a tensor without dimensions, which has __iter__ all the same
    if isinstance(result, (str, bytes, dict)) or without or not hasattr(result, "__iter__"):
        raise WrongShape(f"{wanted}; it returned {_shown(result)} for {_completions(count)}")
    found = list(result)
    if len(found) != count:
        shown = _shown(result if hasattr(result, "__len__") else found)  # a generator shows nothing of what it gave
        raise WrongShape(f"{wanted}; it returned {shown} with {len(found)} for {_completions(count)}")
    return [None if value is None else _number(value, f"{wanted}; it returned a list with", name) for value in found]


def _number(value: Any, wanted: str, name: str) -> float:
    """One reward. A text is none, and neither is what has elements, though float takes both at times."""
    if isinstance(value, (str, bytes)) or getattr(value, "shape", ()) != () or not hasattr(value, "__float__"):
        raise counted(TypeError(f"{wanted} {_shown(value)}"), f"{name} returned no number")
    made = float(value)
    if not math.isfinite(made):
        raise counted(
            ValueError(f"{name} returned {made}, which is no finite number"), f"{name} returned no finite number"
        )
    if abs(made) > LARGEST:
        raise counted(
            ValueError(
                f"{name} returned {made:g}; expected a number between -{LARGEST:g} and {LARGEST:g}: trainers add up "
                "squares of scores in single precision"
            ),
            f"{name} returned a number out of range",
        )
    return made


def counted(error: Exception, name: str) -> Exception:
    """The error, which is counted under a name: its text has data of the call."""
    setattr(error, COUNTED_AS, name)
    return error


def _shown(value: Any) -> str:
    shape = getattr(value, "shape", None)
    return f"{value!r:.80} ({type(value).__name__}{f' of shape {tuple(shape)}' if shape is not None else ''})"


def _completions(count: int) -> str:
    return "one completion" if count == 1 else f"{count} completions"
