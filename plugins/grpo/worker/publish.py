"""Weights for inference: a directory that appears in one step, and the numbers that prove what is served.

A transport that carries less than the trainer's precision says so: bf16 rounds most of a small update away (measured:
held-out accuracy .967 in float32, .467 after rounding the same weights).
"""

from __future__ import annotations

import functools
import os
import shutil
import time
from pathlib import Path
from typing import Any

import torch
from recipe_sdk.dtypes import DTYPES
from recipe_sdk.errors import WorkerError
from recipe_sdk.files import replace_directory
from recipe_sdk.ipc import Shared
from recipe_sdk.ranks import Ranks
from safetensors import SafetensorError

from . import weights
from .batch import Row
from .config import Config
from .model import Policy, reshard

TRANSPORTS = ("full", "lora", "ipc", "nccl", "none")


def publish(c: Config, policy: Policy, shared: Shared, ranks: Ranks, body: dict[str, Any], step: int) -> dict[str, Any]:
    """Makes the current weights available as the command says; every rank takes part.

    body: version (integer), transport ("full": the whole model; "lora": the adapter; "ipc": handles of tensors in
    memory; "nccl": where to receive them; "none": only the version), dir (target directory, replaced if it exists),
    dtype (default: the trainer's), untie_embeddings, keep (ipc, nccl: the tensors must keep their values until the next
    publication). shared is an nccl.Sender for nccl."""
    version, transport = int(body["version"]), body.get("transport", "full")
    if transport not in TRANSPORTS:
        raise WorkerError(f"transport {transport!r} is unknown; expected one of {', '.join(TRANSPORTS)}")
    if transport == "lora" and not policy.adapted:
        raise WorkerError("transport lora needs adapters, and this run trains all weights", ["Use transport full."])
    dtype = body.get("dtype")
    if dtype is not None and dtype not in DTYPES:
        raise WorkerError(f"dtype {dtype!r} is unknown; expected one of {', '.join(DTYPES)}")
    answer = {"version": version, "transport": transport, "step": step}
    if transport == "none":
        return answer
    if transport in ("ipc", "nccl"):
        started = time.monotonic()
        keep = bool(body.get("keep")) or ranks.world > 1  # shards are gathered into buffers anyway
        facts = shared.refresh(
            functools.partial(weights.merged, policy), ranks.device, version, dtype, keep,
            lambda: dict(policy.causal.named_parameters()), ranks.main, ranks.agree,
        )  # fmt: skip
        return {**answer, "write_seconds": time.monotonic() - started, "rounded": _rounds(c, policy, dtype), **facts}
    final, started = Path(body["dir"]), time.monotonic()
    temporary = final.with_name(f".tmp-{final.name}-{os.getpid()}")
    ranks.agree(lambda: _empty(temporary, final) if ranks.main else None)
    out = temporary if ranks.main else None
    try:
        if transport == "full":
            facts = weights.save_model(policy, out, c.model.path, dtype, bool(body.get("untie_embeddings")))
        else:
            facts = weights.save_adapter(policy, out, c.model.path, dtype)
        if out is not None:
            replace_directory(out, final)
    except (OSError, SafetensorError) as e:
        raise _unwritable(final, e) from e
    facts["rounded"] = _rounds(c, policy, dtype)
    return {**answer, "dir": str(final), "write_seconds": time.monotonic() - started, **facts}


def _empty(temporary: Path, final: Path) -> None:
    """An empty directory beside `final`; what publications that were killed left there goes."""
    try:
        for leftover in final.parent.glob(".*"):
            if leftover.name.rpartition("-")[0] in (f".tmp-{final.name}", f".old-{final.name}"):
                shutil.rmtree(leftover, ignore_errors=True)
        temporary.mkdir(parents=True)
    except OSError as e:
        raise _unwritable(final, e) from e


def _unwritable(final: Path, e: Exception) -> WorkerError:
    return WorkerError(f"{final} could not be written: {e}",
                       ["Is the disk full?", "May this user write there?"])  # fmt: skip


def _rounds(c: Config, policy: Policy, dtype: str | None) -> bool:
    """Whether what is published is coarser than what is trained. Merged adapters take the precision of the weights."""
    carried = DTYPES[dtype or c.model.dtype]
    trained = max((p.dtype for p in policy.parameters() if p.requires_grad), key=lambda d: torch.finfo(d).bits)
    return torch.finfo(carried).bits < torch.finfo(trained).bits


@torch.no_grad()
def logprobs(policy: Policy, device: torch.device, body: dict[str, Any], raw: bool) -> dict[str, Any]:
    """Log-probabilities of token_ids[1:] under the current weights, each given what comes before it: what a server
    that holds the same weights must answer for the same ids. Instead of token_ids text may be given; the answer names
    its ids. temperature: default 1."""
    text = body.get("text")
    ids = body["token_ids"] if text is None else _tokenized(policy.causal.config._name_or_path, str(text))
    if not isinstance(ids, list) or len(ids) < 2 or not all(isinstance(i, int) for i in ids):
        raise WorkerError("token_ids: expected a list of at least two token ids")
    vocabulary = policy.causal.config.vocab_size
    if not all(0 <= i < vocabulary for i in ids):
        raise WorkerError(f"token_ids: expected ids from 0 to {vocabulary - 1}")
    n, temperature = len(ids), float(body.get("temperature", 1.0))
    tokens = torch.tensor(ids)
    row = Row(
        [0], tokens[None], torch.arange(n)[None], torch.tensor([0, n], dtype=torch.int32), n, torch.arange(n - 1),
        tokens[1:], torch.arange(n - 1), torch.full((n - 1,), temperature, dtype=torch.float64),
    ).to(device)  # fmt: skip
    policy.eval()
    try:
        return {"logprobs": policy(row, raw=raw).lp.double().tolist(), "token_ids": ids}
    finally:
        reshard(policy)


@functools.cache
def _tokenized(model: str, text: str) -> list[int]:
    """The text's token ids without special tokens."""
    from transformers import AutoTokenizer

    try:
        return list(AutoTokenizer.from_pretrained(model).encode(text, add_special_tokens=False))
    except (OSError, ValueError) as e:
        raise WorkerError(f"{model} has no tokenizer that can be loaded: {e}", ["Give token_ids."]) from e
