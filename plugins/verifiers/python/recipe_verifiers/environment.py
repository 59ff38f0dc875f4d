"""The environment."""

from __future__ import annotations

import asyncio
import importlib.metadata
import importlib.util
import itertools
import os
import random
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from recipe_sdk import Environment, InfraFailure, Policy, Task, setting
from recipe_sdk.environment import unkept

if TYPE_CHECKING:
    from .endpoint import Endpoint


@dataclass
class Settings:
    taskset: str = setting(doc="Name of a taskset: an installed package, also as owner/name, or one of verifiers")
    config: Any = setting(None, "Settings of the taskset, under its own names")
    env: str = setting("", "What plays the tasks, such as best-of-n. Empty: the taskset's environment, else one agent")
    env_config: Any = setting(None, "Settings of the environment and its agents, under verifiers' names")
    path: str = setting("", "Folder beside the recipe with further packages, such as tasksets of your own", file=True)
    eval_config: Any = setting(
        None, 'Settings of the taskset that are others in the held-out set, such as { split = "test" }'
    )
    eval_tasks: int = setting(
        64, "Held-out tasks. Without eval_config the first ones of the taskset, which are then never trained on", min=1
    )
    seed: int = setting(0, "Order in which the tasks come; each once before any comes again")


OLDER = (
    "Environments of versions before 0.4 (load_environment, SingleTurnEnv, Rubric) are built otherwise: take a release "
    'of the package for verifiers 0.4, or name its reward functions in environment "reward"'
)


def _check_version() -> None:
    """Names the version that is supported, where another one is installed."""
    try:
        found = importlib.metadata.version("verifiers")
    except importlib.metadata.PackageNotFoundError:
        return  # the import says so
    if importlib.util.find_spec("verifiers.v1") is None:
        raise RuntimeError(f'environment "verifiers" needs verifiers 0.4 or later, and {found} is installed. {OLDER}')


def _explained(e: Exception, taskset: str) -> Exception:
    """What is wrong with a taskset that verifiers cannot load: a module that it imports is missing, or it is of older
    versions."""
    name = taskset.rsplit("/", 1)[-1].split("@", 1)[0].replace("-", "_").lower()
    cause = e.__cause__
    if isinstance(cause, ModuleNotFoundError) and cause.name and cause.name.split(".")[0] != name:
        return ModuleNotFoundError(f"No module named {cause.name!r}, which the taskset {taskset!r} imports")
    if isinstance(e, ModuleNotFoundError):
        return ModuleNotFoundError(
            f"the taskset {taskset!r} is not installed: name its package in runtime {{ requirements = […] }} and run "
            f"recipe init, or put the module {name!r} into the folder that path names"
        )
    if isinstance(e, ImportError) and cause is None and "verifiers" in str(e):
        return ImportError(f"the taskset {taskset!r} does not import with the installed verifiers: {e}. {OLDER}")
    module = sys.modules.get(name)
    if module is not None and hasattr(module, "load_environment"):
        return RuntimeError(f"{taskset!r} has load_environment and no Taskset. {OLDER}")
    return e


class Verifiers(Environment):
    """Tasksets and environments of Prime Intellect's verifiers.

    Single-turn, multi-turn and tool environments, of one agent or several, with their own rewards.
    docs/environments/verifiers.md explains it."""

    settings: Settings
    version = "0.1.0"
    defaults = {"max_tokens": 512}
    reads = ("HF_TOKEN", "HF_*", "NLTK_DATA", "PRIME_*")

    async def setup(self) -> None:
        s = self.settings
        if s.path:
            folder = str((self.context.folder / s.path).resolve())
            unkept.below(Path(folder))
            sys.path.insert(0, folder)
            # The servers of a task's tools are processes of their own.
            os.environ["PYTHONPATH"] = os.pathsep.join(p for p in (folder, os.environ.get("PYTHONPATH")) if p)
        _check_version()
        from verifiers import v1 as vf

        from .endpoint import Endpoint

        try:
            config = self._resolve(s.config)
            self._env = vf.load_environment(config)
        except (ImportError, AttributeError, TypeError) as e:
            raise _explained(e, s.taskset) from e
        self._alone = len(config.agent_harnesses()) == 1
        self._held: list[Any]
        tasks = iter(self._env.taskset)
        if s.eval_config is not None:
            held = self._resolve({**(s.config or {}), **s.eval_config}).taskset
            self._held = list(vf.load_taskset(held).take(s.eval_tasks))
        else:
            self._held = list(itertools.islice(tasks, s.eval_tasks))
        self._tasks = tasks if not self._env.taskset.bounded else _shuffled(list(tasks), s.seed)
        self._first = next(self._tasks, None)
        if self._first is None:
            raise ValueError(
                f"the taskset {s.taskset} has no task beside the {len(self._held)} held-out ones: lower eval_tasks, or "
                "set eval_config"
            )
        self._endpoint: Endpoint = Endpoint()
        client = vf.EvalClientConfig(base_url=await self._endpoint.start(), api_key_var="RECIPE_POLICY_KEY")
        self._model = vf.ModelContext(model="policy", client=client)
        self._end = asyncio.Event()
        started: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._serving = asyncio.create_task(self._serve(started))
        await started

    def _resolve(self, taskset: Any) -> Any:
        """The configuration, with defaults that train: agents run in this process, unless it says otherwise."""
        from verifiers import v1 as vf

        s = self.settings
        made = {**(s.env_config or {}), "id": s.env, "taskset": {**(taskset or {}), "id": s.taskset}}
        for name, field in vf.env_config_type(s.taskset, s.env).model_fields.items():
            declared = field.default
            if not isinstance(declared, vf.AgentConfig):
                continue
            agent = made[name] = dict(made.get(name) or {})
            if "runtime" not in declared.model_fields_set:
                agent.setdefault("runtime", {"type": "subprocess"})
            if declared.harness.id == "null" if declared.harness else vf.default_harness_id(s.taskset) == "bash":
                agent.setdefault("harness", {"id": "recipe-chat"})
        return vf.resolve_env_config(made)

    async def _serve(self, started: asyncio.Future[None]) -> None:
        """Holds what the environment's rollouts share. It is one task: what is entered in a task must be left in it."""
        try:
            async with self._env.serving():
                started.set_result(None)
                await self._end.wait()
        except Exception as e:
            if started.done():
                raise
            started.set_exception(e)

    async def next(self) -> Task | None:
        task, self._first = self._first or next(self._tasks, None), None
        return None if task is None else Task(data=task)

    async def held_out(self) -> list[Task]:
        return [Task(data=task) for task in self._held]

    async def rollout(self, task: Task, policy: Policy) -> None:
        from .endpoint import Run

        run = Run(policy, self._alone)
        self._endpoint.runs.append(run)
        try:
            episode = await self._env.run_episode(task.data, self._model, on_trace=run.minted, on_discard=run.discarded)
        finally:
            self._endpoint.runs.remove(run)
        if run.problem is not None:
            raise run.problem
        errors = [*episode.errors, *(e for t in episode.traces for e in t.errors)]
        if not self._env.complete(episode):
            raise InfraFailure("; ".join(f"{e.type}: {e.message}" for e in errors) or "the episode is not complete")
        for trace in episode.traces:
            if trace.stop_condition in ("setup_timeout", "finalize_timeout", "scoring_timeout"):
                raise InfraFailure(f"the trace has no reward: {trace.stop_condition}")
        run.score()

    async def close(self) -> None:
        if hasattr(self, "_serving"):
            self._end.set()
            await self._serving
            await self._endpoint.stop()


def _shuffled(tasks: list[Any], seed: int) -> Iterator[Any]:
    """The tasks again and again, each time in another order."""
    order = random.Random(seed)
    while tasks:
        order.shuffle(tasks)
        yield from tasks
