"""Says what an environment is: `python -m recipe_sdk.environment.describe SOURCE NAME OUTPUT [ALLOWED]` writes JSON to
OUTPUT. ALLOWED is a JSON list of the files of the folder of SOURCE that may be imported; without it, all may."""

from __future__ import annotations

import inspect
import json
import os
import sys
from pathlib import Path
from typing import Any

from . import load, unkept
from .base import Environment
from .settings import schema


def describe(cls: type[Environment]) -> dict[str, Any]:
    """Of one environment."""
    doc = inspect.cleandoc(cls.__doc__) if cls.__doc__ and cls.__doc__ != Environment.__doc__ else ""
    summary, _, rest = doc.partition("\n\n")
    return {
        "class": cls.__name__, "version": cls.version,
        "summary": " ".join(summary.split()) or f"The environment {cls.__name__}",
        "doc": " ".join(rest.split()), "schema": schema(load.settings_of(cls)),
        "defaults": {k: v if isinstance(v, str) else json.dumps(v) for k, v in cls.defaults.items()},
        "held_out": cls.held_out is not Environment.held_out, "rollout": load.rolls_out(cls),
        "environment": list(cls.reads),
    }  # fmt: skip


def main(source: str, name: str, output: str, allowed: str = "") -> int:
    """Writes the description, or what is wrong, which is not this program's failure."""
    if allowed:
        unkept.only(json.loads(Path(allowed).read_text(encoding="utf-8")))
    if source.endswith(".py"):  # only now: Python before 3.11 takes modules from the working directory
        os.chdir(Path(source).resolve().parent)
    try:
        module = load.module_of(source)
        answer = describe(load.environment_of(module, name))
        if source.endswith(".py"):
            answer["files"] = load.imported_from(Path(source).resolve().parent)
    except BaseException as e:
        answer = {"problem": load.problem(e)}
    Path(output).write_text(json.dumps(answer), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
