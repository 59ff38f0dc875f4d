"""A loss or an estimator from a user's file: "PATH:FUNCTION".

The file is read and run once a process, so that every rank and every micro-batch has the same function. What goes wrong
in it is told with the line of the user's own file.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import linecache
import os
import sys
import traceback
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

from recipe_sdk.errors import WorkerError

from . import registry

#: Environment variable with the folders where imports of users' files are looked for: a file that is run may be a copy.
IMPORTS = "RECIPE_GRPO_IMPORTS"


class UserCodeError(WorkerError):
    """The user's own function failed."""

    code = "user_code"


def split(reference: str) -> tuple[str, str]:
    """Path and function of "PATH:FUNCTION"; ValueError when it is something else."""
    path, colon, function = reference.rpartition(":")
    if not colon or not path.endswith(".py") or not function.isidentifier():
        raise ValueError(f'expected "FILE.py:FUNCTION", got {reference!r}')
    return path, function


@functools.lru_cache(maxsize=16)
def spec(reference: str, what: str) -> Any:
    """The LossSpec (what = "loss") or EstimatorSpec ("estimator") of the function. One without a decorator has what the
    decorator takes for granted, and its own name."""
    path, name = split(reference)
    module = _module(path)
    function = getattr(module, name, None)
    if not callable(function):
        own = [k for k, v in vars(module).items() if getattr(v, "__module__", None) == module.__name__ and callable(v)]
        raise UserCodeError(f"{path} has no function {name}", [f"It has {', '.join(sorted(own)) or 'no function'}."])
    if not hasattr(function, what):
        other = next((k for k in ("loss", "estimator") if hasattr(function, k)), None)
        if other:
            raise UserCodeError(f"{name} in {path} is decorated as {other}, and {what} is asked for here")
        getattr(registry, what)(name)(function)
    found = getattr(function, what)
    return dataclasses.replace(found, function=_guarded(found.function, path))


def _module(path: str) -> types.ModuleType:
    """The file as a module. Its lines are remembered: an error quotes what has run, not what is there by then."""
    try:
        source = Path(path).read_bytes()
    except OSError as e:
        raise UserCodeError(
            f"{path} cannot be read: {e.strerror or e}", ["Does the file exist where the recipe says?"]
        ) from e
    module = types.ModuleType(f"recipe_user_{hashlib.sha256(source).hexdigest()[:16]}")
    module.__file__ = path
    text = source.decode("utf-8", "replace")
    linecache.cache[path] = (len(source), None, text.splitlines(keepends=True), path)
    sys.modules[module.__name__] = module  # dataclasses look their module up
    for folder in os.environ.get(IMPORTS, "").split(os.pathsep):
        if folder and folder not in sys.path:
            sys.path.insert(0, folder)
    _run(lambda: exec(compile(source, path, "exec"), vars(module)), path)
    return module


def _guarded(function: Callable[..., Any], path: str) -> Callable[..., Any]:
    @functools.wraps(function)
    def call(*args: Any) -> Any:
        return _run(lambda: function(*args), path)

    return call


def _run(action: Callable[[], Any], path: str) -> Any:
    """action(), whose error becomes a UserCodeError that names the line. Memory is the step's to explain."""
    import torch

    try:
        return action()
    except (UserCodeError, torch.OutOfMemoryError):
        raise
    except Exception as e:
        frames = [f for f in traceback.extract_tb(e.__traceback__) if f.filename == path]
        line = frames[-1].lineno if frames else getattr(e, "lineno", None)
        where = f"{Path(path).name}, line {line}" if line else Path(path).name
        if frames and frames[-1].name != "<module>":
            where += f", in {frames[-1].name}"
        quoted = (frames[-1].line if frames else getattr(e, "text", None)) or ""
        checks = [f"The line: {quoted.strip()}"] if quoted.strip() else []
        raise UserCodeError(f"{where}: {type(e).__name__}: {e}", checks) from e
