"""Weights for inference: a folder that appears in one step, or tensors in memory, and the numbers that verify what is
served.

A transport that carries less than the trainer's precision says so: bf16 rounds most of a small update away (measured:
held-out accuracy .967 in float32, .467 after rounding the same weights).
"""

from __future__ import annotations

import functools
import os
import shutil
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from . import weights
from .dtypes import DTYPES
from .errors import DiskFull, WorkerError
from .files import full, replace_directory

if TYPE_CHECKING:
    from .bridge import Bridge
    from .hooks import Hooks

TRANSPORTS = ("live", "ipc", "nccl", "reload", "restart", "lora", "none")


def publish(bridge: Bridge[Any], body: dict[str, Any]) -> dict[str, Any]:
    """Makes the current weights available as the command says; every rank takes part.

    body: version (integer), transport ("reload" and "restart": the whole model in files; "lora": the adapter;
    "live" and "ipc": handles of tensors in memory; "nccl": where to receive them; "none": nothing), dir (target
    folder, replaced if it exists), dtype (default: the trainer's), untie_embeddings, keep (of tensors in memory: they
    must keep their values until the next publication), have (the key of handles that are known)."""
    version, transport, dtype = int(body["version"]), body["transport"], body.get("dtype")
    hooks, ranks = bridge.hooks, bridge.ranks
    if transport not in TRANSPORTS:
        raise WorkerError(f"transport {transport!r} is unknown; expected one of {', '.join(TRANSPORTS)}")
    if transport == "lora" and (hooks.adapter is None or hooks.adapter_config is None):
        raise WorkerError("transport lora needs adapters, and this run trains all weights", ["Use transport reload."])
    if dtype is not None and dtype not in DTYPES:
        raise WorkerError(f"dtype {dtype!r} is unknown; expected one of {', '.join(DTYPES)}")
    answer = {"version": version, "transport": transport, "step": bridge.step}
    if transport == "none":
        return answer
    started = time.monotonic()
    if transport in ("live", "ipc", "nccl"):
        sender = bridge.sender if transport == "nccl" else bridge.shared
        keep = bool(body.get("keep"))
        facts = sender.refresh(
            hooks.weights, ranks.device, version, dtype, keep, hooks.storage, ranks.main, ranks.agree
        )
        if transport != "nccl" and body.get("have") and body["have"] == facts.get("handles", {}).get("key"):
            facts["handles"] = {"key": body["have"], "same": True}
    else:
        final = Path(body["dir"])
        answer["dir"] = str(final)
        facts = _folder(bridge, hooks, final, transport, dtype, bool(body.get("untie_embeddings")))
    facts["rounded"] = _rounded(hooks, facts.get("dtype", ""))
    return {**answer, "write_seconds": time.monotonic() - started, **facts}


def _folder(
    bridge: Bridge[Any], hooks: Hooks, final: Path, transport: str, dtype: str | None, untie: bool
) -> dict[str, Any]:
    """Writes `final`, on rank 0; the others take part in gathering."""
    ranks, source = bridge.ranks, bridge.block.model.path
    temporary = final.with_name(f".tmp-{final.name}-{os.getpid()}")
    ranks.agree(lambda: _empty(temporary, final) if ranks.main else None)
    out = temporary if ranks.main else None
    try:
        if transport != "lora":
            facts = weights.save_model(
                hooks.weights(untie), out, source, dtype=dtype, untie=untie and bool(hooks.tied), config=hooks.config
            )
        else:
            assert hooks.adapter is not None and hooks.adapter_config is not None  # publish has looked
            facts = weights.save_adapter(hooks.adapter(), out, source, hooks.adapter_config, dtype)
        if out is not None:
            replace_directory(out, final)
    except Exception as e:
        error = _unwritable(final, e)
        if out is not None:  # half of it takes the room of the next try
            shutil.rmtree(temporary, ignore_errors=True)
        if isinstance(e, OSError) or type(e).__name__ == "SafetensorError":
            raise error from e
        raise
    return facts


def _empty(temporary: Path, final: Path) -> None:
    """An empty folder beside `final`; what publications that were killed left there is removed."""
    try:
        for leftover in final.parent.glob(".*"):
            if leftover.name.rpartition("-")[0] in (f".tmp-{final.name}", f".old-{final.name}"):
                shutil.rmtree(leftover, ignore_errors=True)
        temporary.mkdir(parents=True)
    except OSError as e:
        raise _unwritable(final, e) from e


def _unwritable(final: Path, e: Exception) -> WorkerError:
    text = f"{final} could not be written: {e}"
    return DiskFull(text, str(final.parent)) if full(e, final) else WorkerError(text, ["May this user write there?"])


def _rounded(hooks: Hooks, carried: str) -> bool:
    """Whether what is published is coarser than what is trained. Merged adapters take the precision of the weights."""
    kinds = [torch.finfo(DTYPES[k]).bits for k in carried.split("+") if k in DTYPES]
    return bool(kinds) and hooks.trained is not None and min(kinds) < torch.finfo(hooks.trained).bits


@torch.no_grad()
def logprobs(bridge: Bridge[Any], body: dict[str, Any]) -> dict[str, Any]:
    """Log-probabilities of token_ids[1:] under the current weights, each given what comes before it: what a server
    that holds the same weights must answer for the same ids. temperature: default 1."""
    ids = body["token_ids"]
    if not isinstance(ids, list) or len(ids) < 2 or not all(isinstance(i, int) for i in ids):
        raise WorkerError("token_ids: expected a list of at least two token ids")
    vocabulary = bridge.hooks.reading().vocabulary
    if not all(0 <= i < (vocabulary or 1 << 31) for i in ids):
        raise WorkerError(f"token_ids: expected ids from 0 to {(vocabulary or 1 << 31) - 1}")
    found = bridge.hooks.logprobs(torch.tensor([ids]), float(body.get("temperature", 1.0)))
    return {"logprobs": found.double().tolist()}


@functools.cache
def tokenize(model: str, text: str) -> list[int]:
    """The text's token ids without special tokens."""
    from transformers import AutoTokenizer

    try:
        return list(AutoTokenizer.from_pretrained(model).encode(text, add_special_tokens=False))
    except (OSError, ValueError) as e:
        raise WorkerError(f"{model} has no tokenizer that can be loaded: {e}", ["Give token_ids."]) from e
