"""Checkpoints: step_N directories that transformers loads, with everything an exact resume needs beside the weights.

step_N/
  config.json, model*.safetensors, tokenizer files   the policy (adapters merged, when save_merged)
  adapter/                                           with adapters: what peft loads, and what resume reads
  training/state.json                                step, policy version, cursor, normaliser, controllers, metrics
  training/optimizer.pt, training/rng.pt
  COMPLETE                                           written last; a directory without it is never read
"""

from __future__ import annotations

import json
import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from recipe_sdk.errors import CheckpointError
from recipe_sdk.events import plain
from recipe_sdk.files import replace_directory, sync_tree
from safetensors import SafetensorError

from . import weights
from .config import Config
from .model import Policy

MARKER = "COMPLETE"


def newest(directory: str | os.PathLike) -> Path | None:
    """The complete checkpoint of the highest step."""
    found = complete(directory)
    return found[-1] if found else None


def complete(directory: str | os.PathLike) -> list[Path]:
    """Complete checkpoints, oldest first."""
    root = Path(directory)
    steps = [(int(p.name.removeprefix("step_")), p) for p in root.glob("step_*")
             if p.name.removeprefix("step_").isdigit() and (p / MARKER).exists()]  # fmt: skip
    return [p for _, p in sorted(steps)]


def rng_state() -> dict:
    """Random states of this rank."""
    state = {"torch": torch.get_rng_state(), "python": random.getstate()}
    if torch.cuda.is_available():
        state["cuda"] = torch.cuda.get_rng_state()
    return state


def set_rng_state(state: dict) -> None:
    """Puts rng_state back."""
    torch.set_rng_state(state["torch"])
    version, internal, gauss = state["python"]
    random.setstate((version, tuple(internal), gauss))
    if "cuda" in state and torch.cuda.is_available():
        torch.cuda.set_rng_state(state["cuda"])


def optimizer_state(policy: Policy, optimizer: torch.optim.Optimizer, sharded: bool) -> dict:
    """The whole optimizer state by parameter name on the CPU, the same for any number of ranks; a collective."""
    if sharded:
        from torch.distributed.checkpoint.state_dict import StateDictOptions, get_optimizer_state_dict

        options = StateDictOptions(full_state_dict=True, cpu_offload=True)
        return get_optimizer_state_dict(policy, optimizer, options=options)
    names = _names(policy, optimizer)
    plain = optimizer.state_dict()
    groups = [{**g, "params": [names[k] for k in g["params"]]} for g in plain["param_groups"]]
    return {"state": {names[k]: v for k, v in plain["state"].items()}, "param_groups": groups}


def set_optimizer_state(policy: Policy, optimizer: torch.optim.Optimizer, state: dict, sharded: bool) -> None:
    """Puts optimizer_state back, but for the constants: those are the configuration's of today."""
    today = [{k: v for k, v in g.items() if k != "params"} for g in optimizer.param_groups]
    if sharded:
        from torch.distributed.checkpoint.state_dict import StateDictOptions, set_optimizer_state_dict

        set_optimizer_state_dict(policy, optimizer, state, options=StateDictOptions(full_state_dict=True))
    else:
        number = {n: k for k, n in enumerate(_names(policy, optimizer))}
        groups = [{**g, "params": [number[n] for n in g["params"]]} for g in state["param_groups"]]
        optimizer.load_state_dict({"state": {number[n]: v for n, v in state["state"].items()}, "param_groups": groups})
    for group, constants in zip(optimizer.param_groups, today, strict=True):
        group.update(constants)


def _names(policy: Policy, optimizer: torch.optim.Optimizer) -> list[str]:
    """Names of the optimizer's parameters in its own order."""
    by_identity = {id(p): n for n, p in policy.named_parameters()}
    return [by_identity[id(p)] for g in optimizer.param_groups for p in g["params"]]


def save(
    c: Config, policy: Policy, optimizer: torch.optim.Optimizer, state: dict[str, Any], *, rank: int = 0,
    sharded: bool = False, gather: Any = None,
) -> Path | None:  # fmt: skip
    """Writes step_N in one step and applies keep-last and keep-best; rank 0 returns the path. gather: collects one
    object from each rank (random states)."""
    root = Path(c.checkpoint_dir)
    final = root / f"step_{state['step']}"
    temporary = root / f".tmp-step_{state['step']}-{os.getpid()}"
    problems: list[Exception] = []

    def attempt(action: Callable[[], Any]) -> Any:
        """A failure of rank 0 must not keep it from what every rank has to take part in."""
        try:
            return action()
        except Exception as e:
            problems.append(e)

    def out(*below: str) -> Path | None:
        """Where rank 0 writes, as long as it can."""
        return temporary.joinpath(*below) if rank == 0 and not problems else None

    if rank == 0:
        attempt(lambda: _make(root, temporary, policy.adapted))
    if not policy.adapted or c.save_merged:
        attempt(lambda: weights.save_model(policy, out(), c.model.path))
    if policy.adapted:
        attempt(lambda: weights.save_adapter(policy, out("adapter"), c.model.path))
    moments = attempt(lambda: optimizer_state(policy, optimizer, sharded))
    random_states = gather(rng_state()) if gather else [rng_state()]
    if rank == 0 and not problems:
        attempt(lambda: _finish(temporary, final, state, moments, random_states))
    if problems:
        if isinstance(problems[0], (OSError, SafetensorError)):
            raise CheckpointError(
                f"{final} could not be written: {problems[0]}",
                ["Is the disk full? keep_last = 1 keeps fewer checkpoints.", "May this user write there?"],
            ) from problems[0]
        raise problems[0]
    if rank != 0:
        return None
    prune(c, keep=final)
    return final


def _make(root: Path, temporary: Path, adapted: bool) -> None:
    """Empty directories; what earlier lives left unfinished goes."""
    for pattern in (".tmp-step_*", ".old-step_*"):
        for leftover in root.glob(pattern):
            shutil.rmtree(leftover, ignore_errors=True)
    (temporary / "training").mkdir(parents=True)
    if adapted:
        (temporary / "adapter").mkdir()


def _finish(temporary: Path, final: Path, state: dict[str, Any], moments: dict, random_states: list) -> None:
    """Everything besides the weights, and the rename."""
    torch.save(moments, temporary / "training" / "optimizer.pt")
    torch.save(random_states, temporary / "training" / "rng.pt")
    (temporary / "training" / "state.json").write_text(json.dumps(plain(state), indent=1, allow_nan=False))
    sync_tree(temporary)
    (temporary / MARKER).write_text(f"{state['step']}\n")
    replace_directory(temporary, final)


def prune(c: Config, keep: Path) -> list[Path]:
    """Removes checkpoints that neither keep_last nor keep_best wants; returns what went."""
    if c.keep_last <= 0:
        return []
    found = complete(c.checkpoint_dir)
    wanted = {keep, *found[-c.keep_last :]}
    if c.keep_best > 0:
        scored = [(s, p) for p in found if (s := read_state(p).get("metrics", {}).get(c.best_metric)) is not None]
        wanted.update(p for _, p in sorted(scored, key=lambda x: x[0])[-c.keep_best :])
    gone = [p for p in found if p not in wanted]
    for p in gone:
        (p / MARKER).unlink(missing_ok=True)  # from here on nobody reads it
        shutil.rmtree(p, ignore_errors=True)
    return gone


def read_state(path: Path) -> dict[str, Any]:
    """training/state.json of a checkpoint."""
    try:
        return json.loads((path / "training" / "state.json").read_text())
    except (OSError, ValueError) as e:
        raise CheckpointError(
            f"cannot read {path}/training/state.json: {e}",
            [f"Move {path} away to resume from the checkpoint before it.", "Or set resume = false to start anew."],
        ) from e


@torch.no_grad()
def load_weights(path: Path, policy: Policy) -> None:
    """Puts a checkpoint's weights into a freshly loaded policy, before it is sharded."""
    from safetensors.torch import load_file

    elsewhere = "Go back to the setting of the run that wrote it, or start a run of its own with model.path set to it."
    if policy.adapted != (path / "adapter").is_dir():
        trained = ("all weights", "adapters") if policy.adapted else ("adapters", "all weights")
        raise CheckpointError(
            f"{path} was written by a run that trained {trained[0]}, lora.rank says to train {trained[1]}", [elsewhere]
        )
    if policy.adapted:
        stored = load_file(path / "adapter" / "adapter_model.safetensors")
        target = {
            n.replace(".default.weight", ".weight"): p for n, p in policy.model.named_parameters() if ".lora_" in n
        }
    else:
        stored = {}
        for part in sorted(path.glob("model*.safetensors")):
            stored.update(load_file(part))
        target = dict(policy.causal.named_parameters())
    missing = sorted(set(target) - set(stored))
    if missing:
        raise CheckpointError(
            f"{path} lacks {len(missing)} weights of this model, such as {missing[0]}",
            ["Was the checkpoint written with another model.path or lora.rank? Use another checkpoint_dir."],
        )
    for name, p in target.items():
        if stored[name].shape != p.shape:
            raise CheckpointError(
                f"{name} has the shape {list(stored[name].shape)} in {path}, and {list(p.shape)} in this run",
                ["Was it written with another model.path or lora.rank?", elsewhere],
            )
    for name, p in target.items():
        p.copy_(stored[name].to(p.dtype))


def load_training(
    path: Path, policy: Policy, optimizer: torch.optim.Optimizer, rank: int = 0, sharded: bool = False,
    name: str | None = None,
) -> dict[str, Any]:  # fmt: skip
    """Puts optimizer and random states back; returns state.json. name: of the optimizer, when it is to be checked."""
    state = read_state(path)
    before = state.get("config", {}).get("optimizer", {}).get("name", name)
    if before != name:
        raise CheckpointError(
            f"{path} was written with optimizer.name = {before}, whose moments {name} cannot use",
            [f"Set optimizer.name = {before}.", "Or start a run of its own with model.path set to the checkpoint."],
        )
    moments = torch.load(path / "training" / "optimizer.pt", map_location="cpu", weights_only=True)
    set_optimizer_state(policy, optimizer, moments, sharded)
    states = torch.load(path / "training" / "rng.pt", map_location="cpu", weights_only=True)
    set_rng_state(states[rank] if rank < len(states) else states[0])
    return state
