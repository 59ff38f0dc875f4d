"""Checkpoints: step_N folders that appear in one step, with what an exact resume needs.

step_N/
  ...                   what the trainer's `save` wrote
  training/state.json   step, policy version, place in the order of batches, metrics, and the trainer's own `state`
  COMPLETE              written last; a folder without it is never read
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from . import evaluated
from .errors import CheckpointError, DiskFull, Unwritable
from .events import plain
from .files import full, refused, replace_directory, sync_tree
from .settings import RunSettings

MARKER = "COMPLETE"


class Checkpoint(NamedTuple):
    """A checkpoint to resume from."""

    path: Path
    step: int
    state: dict[str, Any]  # training/state.json, the trainer's own `state` included


def newest(directory: str | os.PathLike[str]) -> Path | None:
    """The complete checkpoint of the highest step."""
    found = complete(directory)
    return found[-1] if found else None


def complete(directory: str | os.PathLike[str]) -> list[Path]:
    """Complete checkpoints, oldest first."""
    root = Path(directory)
    steps = [(step_of(p), p) for p in root.glob("step_*")
             if p.name.removeprefix("step_").isdecimal() and (p / MARKER).exists()]  # fmt: skip
    return [p for _, p in sorted(steps)]


def step_of(checkpoint: Path) -> int:
    """The step in the name of a checkpoint."""
    return int(checkpoint.name.removeprefix("step_"))


def save(
    s: RunSettings, state: dict[str, Any], write: Callable[[Path], None], main: bool,
    agree: Callable[[Callable[[], Any]], None], warn: Callable[[str], None] = lambda _: None,
) -> Path:  # fmt: skip
    """Writes step_N in one step and applies keep_last and keep_best; its path. Every rank takes part in `write`; when
    it fails on one, every rank raises and nothing has changed: DiskFull when there was no room, Unwritable when the
    disk refused it otherwise."""
    root = Path(s.checkpoint_dir)
    final = root / f"step_{state['step']}"
    temporary = root / f".tmp-step_{state['step']}"

    def prepare() -> None:
        for pattern in (".tmp-step_*", ".old-step_*"):  # what earlier attempts left unfinished
            for leftover in root.glob(pattern):
                shutil.rmtree(leftover, ignore_errors=True)
        temporary.mkdir(parents=True)

    def finish() -> None:
        (temporary / "training").mkdir(exist_ok=True)
        text = json.dumps(plain(state), indent=1, allow_nan=False)
        (temporary / "training" / "state.json").write_text(text, encoding="utf-8")
        sync_tree(temporary)
        (temporary / MARKER).write_text(f"{state['step']}\n", encoding="utf-8")
        replace_directory(temporary, final)
        prune(s, final, warn)

    def step(action: Callable[[], None], everybody: bool = False) -> Callable[[], None]:
        def run() -> None:
            if main or everybody:
                with explained(final):
                    action()

        return run

    try:
        agree(step(prepare))
        agree(step(lambda: write(temporary), everybody=True))
        agree(step(finish))
    except Exception:
        if main:  # it would take the room of the next try
            shutil.rmtree(temporary, ignore_errors=True)
        raise
    return final


@contextlib.contextmanager
def explained(final: Path) -> Iterator[None]:
    """Turns what a disk refuses into an error that the caller may wait out."""
    try:
        yield
    except Exception as e:
        text = f"{final} could not be written: {e}"
        if full(e, final):
            raise DiskFull(text, str(final.parent)) from e
        if refused(e):
            raise Unwritable(text, str(final.parent)) from e
        if isinstance(e, OSError) or type(e).__name__ == "SafetensorError":
            raise CheckpointError(text, ["May this user write there?"]) from e
        raise


def unscored(s: RunSettings, metrics: Mapping[str, Any]) -> list[str]:
    """What is to be said where no checkpoint can be the best: that no metric of a step is called so."""
    if not (s.keep_best and s.keep_last) or s.by or evaluated.is_evaluation(s.best_metric) or s.best_metric in metrics:
        return []
    return [f"no checkpoint is kept for being the best: there is no metric {s.best_metric} (best_metric)"]


def prune(s: RunSettings, keep: Path, warn: Callable[[str], None] = lambda _: None) -> list[Path]:
    """Removes checkpoints that neither keep_last nor keep_best wants; returns those that were removed."""
    if s.keep_last <= 0:
        return []
    found = complete(s.checkpoint_dir)
    wanted = {keep, *found[-s.keep_last :]}
    metric = s.by or s.best_metric
    if s.keep_best > 0 and evaluated.is_evaluation(metric):
        steps = {step_of(p): p for p in found}
        others = [n for n, p in steps.items() if p not in wanted]
        kept = evaluated.keep(Path(s.checkpoint_dir), metric, list(steps), others, s.keep_best)
        wanted.update(steps[n] for n in kept.steps)
        if kept.warning:
            warn(kept.warning)
    elif s.keep_best > 0:
        scored = [(m, p) for p in found if (m := read_state(p).get("metrics", {}).get(metric)) is not None]
        wanted.update(p for _, p in sorted(scored, key=lambda x: x[0])[-s.keep_best :])
    gone = [p for p in found if p not in wanted]
    for p in gone:
        if p.is_symlink():  # the checkpoint that it leads to is another run's
            p.unlink()
            continue
        (p / MARKER).unlink(missing_ok=True)  # from here on nobody reads it
        shutil.rmtree(p, ignore_errors=True)
    return gone


def read_state(path: Path) -> dict[str, Any]:
    """training/state.json of a checkpoint."""
    try:
        state: dict[str, Any] = json.loads((path / "training" / "state.json").read_text(encoding="utf-8"))
    except (OSError, ValueError) as e:
        raise CheckpointError(
            f"cannot read {path}/training/state.json: {e}",
            [f"Move {path} away to resume from the checkpoint before it.", "Or set resume = false to start anew."],
        ) from e
    return state
