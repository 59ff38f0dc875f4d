"""The settings that every trainer has: which model, where batches come from, checkpoints, control, events.

A trainer on the kit reads its JSON file as `Settings`: everything of its own is below `config`. A trainer with typed
settings of its own derives from `RunSettings` instead, as the GRPO worker does.
"""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, TypeVar

from . import fields
from .errors import WorkerError
from .fields import ConfigError, option, section

S = TypeVar("S", bound="RunSettings")


@dataclass(frozen=True)
class ModelSettings:
    """Which model."""

    path: str = option(
        dataclasses.MISSING,
        "Model to train: a Hugging Face name, or a folder. A relative path is resolved against the recipe's folder.",
    )


@dataclass(frozen=True)
class DataSettings:
    """The trajectory API and what a batch is."""

    url: str = option(dataclasses.MISSING, "Trajectory API, any path prefix included.")
    token: str | None = option(None, "Bearer token of the API.")
    batch_size: int = option(64, "Rollouts of a batch.", least=1)
    max_length: int = option(
        2048, "Longest sequence, prompt and completion together, announced to environments.", least=2
    )
    max_prompt_length: int = option(0, "Longest prompt; 0 = no limit.", least=0)
    max_response_length: int = option(0, "Longest response; 0 = no limit.", least=0)
    overlong: str = option("reject", "A longer sequence: reject its group, or stop.", choices=("reject", "error"))
    max_staleness: int | None = option(
        None, "Groups older than this many policy versions are left out.", live=True, least=0
    )
    lease_seconds: float = option(
        120.0, "How long a batch is ours before it must be acknowledged; 0 = no leases.", least=0
    )
    timeout: float = option(30.0, "Seconds a request may take.", least=0.1)
    connect_timeout: float = option(10.0, "Seconds of /register and the first /status.", least=0.1)
    batch_retry_attempts: int = option(8, "Polls before a round without a batch ends.", least=1)
    batch_retry_delay: float = option(
        0.05, "First delay between polls; later ones are a twentieth of the wait so far.", least=0.0
    )
    batch_max_wait: float = option(12.0, "Longest delay between polls.", least=0.01)
    register_attempts: int = option(3, "Attempts to register.", least=1)
    register_delay: tuple[float, float] = option((4.0, 15.0), "First and longest delay between them.")
    explain_after: float = option(60.0, "Seconds without a batch after which the worker says why.", live=True, least=0)
    no_data_timeout: float = option(1800.0, "Seconds without a batch after which the run ends.", live=True, least=0)
    solved_reward: float | None = option(
        None, "If the recent mean reward is at least this, it then ends as solved.", live=True
    )
    wandb_group: str = option("", "W&B group, shared with the environments; empty takes that of a tracking block.")
    wandb_project: str = option("", "W&B project, shared with the environments; empty takes that of a tracking block.")


@dataclass(frozen=True)
class RunSettings:
    """What the kit itself reads. `live` settings change by `update` while the worker runs."""

    # Whether the trainer trains on rollouts of several sequences (overrides[i].rollout). Otherwise environments send
    # one sequence a rollout, and of a rollout with several only the one with the most trained tokens is read.
    rollout_parts: ClassVar[bool] = False

    model: ModelSettings = section(ModelSettings, "Which model.")
    data: DataSettings = section(DataSettings, "The trajectory API and what a batch is.")
    steps: int = option(100, "Training steps (batches) of the whole run.", live=True, least=0)
    seed: int = option(0, "Seed of everything random.", least=0)
    threads: int = option(0, "CPU threads; 0 = torch's own choice.", least=0)
    checkpoint_dir: str = option("checkpoints", "Where step_N directories go.")
    resume: bool = option(True, "Continue from the newest checkpoint there.")
    save_every: int = option(20, "Steps between checkpoints; 0 = only at the end.", live=True, least=0)
    keep_last: int = option(2, "Newest checkpoints kept; 0 = all.", live=True, least=0)
    keep_best: int = option(0, "Best checkpoints to keep in addition to keep_last.", live=True, least=0)
    best_metric: str = option(
        "reward/mean",
        "Metric that decides which is best (higher): one of a step, or evaluation/NAME/METRIC of an evaluation block.",
    )
    by: str = option(
        "",
        "Evaluation block that decides which is best, in place of best_metric: evaluation.NAME, by its first pass@K.",
    )
    events_file: str | None = option("events.jsonl", "Events are appended here; unset: they only go to the supervisor.")
    control: str | None = option(None, "HOST:PORT of the supervisor (loopback); unset: there is none.")
    control_token: str | None = option(None, "What the supervisor knows this worker by.")
    publish_every: int = option(1, "Training steps between weight publications.", live=True, least=1)
    wait_for_sync: bool = option(
        False, "Offer the weights of each step to the supervisor, and wait until inference serves them."
    )
    sync_timeout: float = option(
        600.0, "How long a sync block may take to bring the weights of a step to inference.", live=True, least=0.1
    )
    policy_version: int = option(0, "Version of the starting weights.", least=0)
    prepare: str = option(
        "", "How far to go before the supervisor starts the block: not at all, without the device, all the way, or all "
        "the way in what inference on the same device has left of its memory.",
        choices=("", "host", "device", "beside"),
    )  # fmt: skip
    collective_timeout: float = option(1800.0, "Seconds a rank waits for another.", least=1)


@dataclass(frozen=True)
class Settings(RunSettings):
    """The settings of a trainer that has no typed ones: what is its own is in `config`, untouched."""

    config: dict[str, Any] = option({}, "The trainer's own settings, as the block's `config = {…}` gives them.")


def check(s: RunSettings) -> list[str]:
    """Settings that contradict each other or expose the run, one line each, with what to do."""
    d, out = s.data, []
    if d.max_prompt_length >= d.max_length:
        out.append(f"data.max_prompt_length: {d.max_prompt_length} of data.max_length = {d.max_length} tokens leave "
                   "none for a completion; lower it, or raise max_length")  # fmt: skip
    first, longest = d.register_delay
    if not 0 <= first <= longest:
        out.append(f"data.register_delay: expected 0 <= first <= longest, got {first:g} and {longest:g}")
    if s.control is None:
        return out + ["wait_for_sync needs a supervisor: set control, or wait_for_sync = false"] * s.wait_for_sync
    if s.control.rsplit(":", 1)[0] in ("127.0.0.1", "localhost", "[::1]"):
        return out
    out.append(
        f"control: {s.control} is not HOST:PORT on loopback; commands and the token would be open to the network"
    )
    return out


def check_model(s: RunSettings) -> None:
    """WorkerError when the model is a folder that is not there: libraries take its path for a name in the hub then."""
    if os.path.isabs(s.model.path) and not os.path.exists(s.model.path):
        raise WorkerError(f"there is no folder {s.model.path}, where the model should be", [
            "Correct model: a folder with a config.json (./NAME counts from the recipe), or a name in the hub.",
        ], "model", "model.path")  # fmt: skip


def from_dict(given: Mapping[str, Any], cls: type[S], check: Callable[[S], list[str]] = check) -> S:
    """Checked settings, or ConfigError with every mistake, one a line."""
    errors: list[str] = []
    missing: dict[str, Any] = {s: {} for s in ("model", "data") if s not in given}
    found: S = fields.read(cls, {**missing, **given}, "", errors)
    if not errors:
        errors = check(found)
    if errors:
        raise ConfigError("the configuration is wrong:\n" + "\n".join(f"  {e}" for e in errors))
    return found


def public(s: RunSettings) -> dict[str, Any]:
    """The settings as JSON, without tokens: what a checkpoint keeps."""

    def plain(of: dict[str, Any]) -> dict[str, Any]:
        return {k: plain(v) if isinstance(v, dict) else v for k, v in of.items() if k not in ("token", "control_token")}

    config = getattr(s, "config", None)  # a trainer's own, untouched
    return {**plain(dataclasses.asdict(s)), **({} if config is None else {"config": config})}


def load(path: str | os.PathLike[str]) -> dict[str, Any]:
    """The JSON object of a configuration file."""
    with open(path, encoding="utf-8") as f:
        try:
            given = json.load(f)
        except json.JSONDecodeError as e:
            raise ConfigError(f"{path} is not JSON: {e}") from e
    if not isinstance(given, dict):
        raise ConfigError(f"{path}: expected a JSON object, got {type(given).__name__}")
    return given


def update(s: S, change: Mapping[str, Any], check: Callable[[S], list[str]] = check) -> S:
    """s with live settings changed; ConfigError when a setting is unknown, wrong or needs a restart."""
    new = from_dict(fields.merge(dataclasses.asdict(s), dict(change)), type(s), check)
    fixed = [name for name, live in fields.changed(s, new) if not live]
    if fixed:
        raise ConfigError(f"only a restart can change {', '.join(fixed)}")
    return new
