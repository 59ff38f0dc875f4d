"""What this trainer puts into a checkpoint's folder, beside what the bridge writes, and reads from it again.

step_N/
  config.json, model*.safetensors, tokenizer files   the policy (adapters merged, when save_merged)
  adapter/                                           with adapters: what peft loads, and what resume reads
  training/optimizer.pt, training/rng.pt
"""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from recipe_sdk import Checkpoint
from recipe_sdk.errors import CheckpointError
from recipe_sdk.ranks import Ranks
from recipe_sdk.weights import save_adapter, save_model

from . import offload, weights
from .config import Config
from .model import Policy


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
        # today's already here: torch puts a step counter on the GPU only if the groups that it is given say "fused"
        groups = [
            {**g, **now, "params": [number[n] for n in g["params"]]}
            for g, now in zip(state["param_groups"], today, strict=True)
        ]
        optimizer.load_state_dict({"state": {number[n]: v for n, v in state["state"].items()}, "param_groups": groups})
    for group, constants in zip(optimizer.param_groups, today, strict=True):
        group.update(constants)


def _names(policy: Policy, optimizer: torch.optim.Optimizer) -> list[str]:
    """Names of the optimizer's parameters in its own order."""
    by_identity = {id(p): n for n, p in policy.named_parameters()}
    return [by_identity[id(p)] for g in optimizer.param_groups for p in g["params"]]


def write(c: Config, policy: Policy, optimizer: torch.optim.Optimizer, folder: Path, ranks: Ranks) -> None:
    """Writes weights, optimizer and random states into a folder; rank 0 writes, every rank takes part. A failure of
    rank 0 must not keep it from what every rank has to take part in: it raises when all is over."""
    problems: list[Exception] = []

    def attempt(action: Callable[[], Any]) -> Any:
        try:
            return action()
        except Exception as e:
            problems.append(e)

    def out(*below: str) -> Path | None:
        """Where rank 0 writes, as long as it can."""
        return folder.joinpath(*below) if ranks.main and not problems else None

    if ranks.main:
        attempt((folder / "training").mkdir)
    if not policy.adapted or c.save_merged:
        attempt(
            lambda: save_model(
                weights.merged(policy), out(), c.model.path, config=partial(weights.write_config, policy)
            )
        )
    if policy.adapted:
        if ranks.main:
            attempt((folder / "adapter").mkdir)
        config = partial(weights.write_adapter_config, policy)
        attempt(lambda: save_adapter(weights.adapter(policy), out("adapter"), c.model.path, config))
    moments = attempt(lambda: optimizer_state(policy, optimizer, bool(policy.sharded)))
    random_states = ranks.gather(rng_state())
    training = out("training")
    if training is not None:
        attempt(lambda: torch.save(moments, training / "optimizer.pt"))
        attempt(lambda: torch.save(random_states, training / "rng.pt"))
    if problems:
        raise problems[0]


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
    if policy.merged:
        policy.merged.refresh()


def load_training(
    found: Checkpoint, policy: Policy, optimizer: torch.optim.Optimizer, rank: int = 0, sharded: bool = False,
    name: str | None = None,
) -> None:  # fmt: skip
    """Puts optimizer and random states back. name: of the optimizer, when it is to be checked."""
    path = found.path
    before = found.state.get("config", {}).get("optimizer", {}).get("name", name)
    if before != name:
        raise CheckpointError(
            f"{path} was written with optimizer.name = {before}, whose moments {name} cannot use",
            [f"Set optimizer.name = {before}.", "Or start a run of its own with model.path set to the checkpoint."],
        )
    # moments that are copied to the host's memory are not read into it first
    mapped = isinstance(optimizer, offload.AdamW)
    moments = torch.load(path / "training" / "optimizer.pt", map_location="cpu", weights_only=True, mmap=mapped)
    set_optimizer_state(policy, optimizer, moments, sharded)
    states = torch.load(path / "training" / "rng.pt", map_location="cpu", weights_only=True)
    set_rng_state(states[rank] if rank < len(states) else states[0])
