"""Starts `vllm serve`, without the imports that can be spared: 15 to 25 s each.

usage: python -m recipe_serve serve MODEL …

To learn what kind of model it is to serve, vLLM imports the model's code, the first time in a process of its own, which
imports everything for that. Here this process does it. It is vLLM's precaution against code that initializes CUDA when
it is imported: a process that has done so cannot fork. vLLM looks for that itself before it starts the engine, and then
starts a new interpreter instead.

Several front ends are forked as the engine is, where VLLM_WORKER_MULTIPROC_METHOD says so: vLLM starts an interpreter
for each, and the engine waits for all of them (18 to 25 s on an H200's machine).
"""

from __future__ import annotations

import importlib.util
import multiprocessing
import os
import sys
from collections.abc import Callable
from multiprocessing.context import BaseContext
from pathlib import Path
from typing import Any, TypeVar

import recipe_graphs

T = TypeVar("T")


def here(action: Callable[[], T]) -> T:
    """In the place of vLLM's _run_in_subprocess."""
    return action()


class Processes:
    """In the place of the module multiprocessing where vLLM starts front ends."""

    def __getattr__(self, name: str) -> Any:
        return getattr(multiprocessing, name)

    def get_context(self, method: str | None = None) -> BaseContext:
        """The context that vLLM uses for the engine; vLLM changes the variable when CUDA has been initialized."""
        forks = os.environ.get("VLLM_WORKER_MULTIPROC_METHOD") == "fork"
        return multiprocessing.get_context("fork" if forks else method)


def reads_answers() -> bool:
    """Whether this vLLM has the routes that read an answer's tokens, by which the gateway reads answers in sessions of
    programs, only with a flag. It is looked up without an import."""
    spec = importlib.util.find_spec("vllm")
    if spec is None or spec.origin is None:
        return False
    file = Path(spec.origin).parent / "entrypoints" / "scale_out" / "factories.py"
    return file.is_file() and "enable_scale_out" in file.read_text(encoding="utf-8")


def main() -> None:
    if reads_answers():
        sys.argv.append("--enable-scale-out")
    if recipe_graphs.decide(sys.argv[1:]):  # vLLM's log is not set up before it starts
        print("recipe: CUDA graphs without compiling; compile = true compiles the model", file=sys.stderr, flush=True)

    from vllm.entrypoints.cli.main import main as vllm
    from vllm.model_executor.models import registry
    from vllm.v1 import utils

    if hasattr(registry, "_run_in_subprocess"):
        registry._run_in_subprocess = here
    if hasattr(utils, "multiprocessing"):
        utils.multiprocessing = Processes()
    vllm()


if __name__ == "__main__":  # not in the processes that vLLM starts
    main()
