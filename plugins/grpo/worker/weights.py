"""Weights on disk: whole models and adapters, written so that a reader never sees half of one."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import torch
from torch import Tensor

from .model import DTYPES, Policy

SHARD_BYTES = 4 << 30
TOKENIZER_FILES = (
    "tokenizer.json", "tokenizer_config.json", "tokenizer.model", "vocab.json", "vocab.txt", "merges.txt",
    "special_tokens_map.json", "added_tokens.json", "chat_template.jinja", "chat_template.json",
    "generation_config.json", "additional_chat_templates",
)  # fmt: skip


def whole(p: Tensor) -> Tensor:
    """A parameter's full value; a collective when it is sharded."""
    p = p.detach()
    return p.full_tensor() if hasattr(p, "full_tensor") else p


@torch.no_grad()
def merged(policy: Policy) -> Iterator[tuple[str, Tensor]]:
    """(name, value) of every weight of the plain model, adapters merged in, on the training device; tied weights once.

    Under sharding every rank must run through it in step."""
    base = policy.causal
    stored = base.state_dict().keys()
    named = list(base.named_parameters()) + [(n, b) for n, b in base.named_buffers() if n in stored]
    for name, p in named:
        if ".lora_" in name:
            continue
        value = whole(p)
        if name.endswith(".base_layer.weight"):
            module = base.get_submodule(name.removesuffix(".base_layer.weight"))
            a, b = whole(module.lora_A["default"].weight), whole(module.lora_B["default"].weight)
            wide = torch.float64 if value.dtype == torch.float64 else torch.float32
            value = (value.to(wide) + module.scaling["default"] * (b.to(wide) @ a.to(wide))).to(value.dtype)
        yield name.replace(".base_layer.", "."), value


@torch.no_grad()
def adapter(policy: Policy) -> Iterator[tuple[str, Tensor]]:
    """(name, value) of the adapter's weights under peft's file names."""
    for name, p in policy.model.named_parameters():
        if ".lora_" in name:
            yield name.replace(".default.weight", ".weight"), whole(p)


def replace_directory(temporary: Path, final: Path) -> None:
    """Makes `temporary` appear as `final` in one step; an older `final` goes."""
    sync_tree(temporary)
    old = final.with_name(f".old-{final.name}-{os.getpid()}")
    if final.exists():
        os.replace(final, old)
    os.replace(temporary, final)
    sync_path(final.parent)
    shutil.rmtree(old, ignore_errors=True)


def sync_path(path: Path) -> None:
    """fsync of a file or directory."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def sync_tree(path: Path) -> None:
    """fsync of everything below a directory."""
    for directory, _, files in os.walk(path):
        for name in files:
            sync_path(Path(directory) / name)
        sync_path(Path(directory))


def save_tensors(items: Iterator[tuple[str, Tensor]], out: Path | None, dtype: torch.dtype | None) -> dict:
    """Streams weights into safetensors files of at most 4 GiB; out = None only takes part in the collectives."""
    try:
        return _write_tensors(items, out, dtype)
    except Exception:
        for _ in items:  # a full disk is rank 0's alone: the other ranks go through all of them
            pass
        raise


def _write_tensors(items: Iterator[tuple[str, Tensor]], out: Path | None, dtype: torch.dtype | None) -> dict:
    from safetensors.torch import save_file

    parts: list[dict[str, Tensor]] = [{}]
    files: dict[str, int] = {}
    size, total, kinds = 0, 0, set()

    def flush(k: int) -> None:
        save_file(parts[k], out / f"part-{k:05d}.safetensors", metadata={"format": "pt"})
        parts[k] = {}

    for name, value in items:
        if out is None:
            continue
        value = value.to(dtype) if dtype is not None and value.is_floating_point() else value
        value = value.to("cpu", copy=True).contiguous()
        width = value.numel() * value.element_size()
        if size and size + width > SHARD_BYTES:
            flush(len(parts) - 1)
            parts.append({})
            size = 0
        parts[-1][name], files[name] = value, len(parts) - 1
        size, total = size + width, total + width
        if value.is_floating_point():
            kinds.add(str(value.dtype).removeprefix("torch."))
    if out is None:
        return {}
    flush(len(parts) - 1)
    if len(parts) == 1:
        os.replace(out / "part-00000.safetensors", out / "model.safetensors")
    else:
        label = lambda k: f"model-{k + 1:05d}-of-{len(parts):05d}.safetensors"  # noqa: E731
        for k in range(len(parts)):
            os.replace(out / f"part-{k:05d}.safetensors", out / label(k))
        index = {"metadata": {"total_size": total}, "weight_map": {n: label(k) for n, k in files.items()}}
        (out / "model.safetensors.index.json").write_text(json.dumps(index, indent=1))
    return {"bytes": total, "tensors": len(files), "dtype": "+".join(sorted(kinds))}


def save_model(policy: Policy, out: Path | None, source: str, dtype: str | None = None, untie: bool = False) -> dict:
    """The plain model as a directory that transformers and vLLM load. untie: write the output head out even where it
    is the embedding (vLLM's CPU build keeps the head of a tied model at its old values on a reload)."""

    def items() -> Iterator[tuple[str, Tensor]]:
        shared = policy.causal.get_input_embeddings().weight
        again = next((n for n, p in policy.causal.named_parameters() if p is shared), None)
        for name, value in merged(policy):
            yield name, value
            if untie and policy.causal.config.tie_word_embeddings and name == again:
                yield "lm_head.weight", value

    facts = save_tensors(items(), out, DTYPES[dtype] if dtype else None)
    if out is None:
        return {}
    policy.causal.config.save_pretrained(out)
    path = out / "config.json"
    config = json.loads(path.read_text())
    config["architectures"] = [type(policy.causal).__name__]
    config["dtype"] = facts["dtype"].split("+")[0]
    if untie:
        config["tie_word_embeddings"] = False
    path.write_text(json.dumps(config, indent=2))
    save_tokenizer(out, source)
    return facts


def save_adapter(policy: Policy, out: Path | None, source: str, dtype: str | None = None) -> dict:
    """The adapter as peft and vLLM load it."""
    facts = save_tensors(adapter(policy), out, DTYPES[dtype] if dtype else None)
    if out is None:
        return {}
    os.replace(out / "model.safetensors", out / "adapter_model.safetensors")
    policy.model.peft_config["default"].save_pretrained(out)
    path = out / "adapter_config.json"
    config = json.loads(path.read_text())
    config.update(base_model_name_or_path=source, inference_mode=True)
    path.write_text(json.dumps(config, indent=2))
    return facts


def save_tokenizer(out: Path, source: str) -> None:
    """The source's tokenizer, byte for byte where the source is a directory; nothing where it has none."""
    if Path(source).is_dir():
        for name in TOKENIZER_FILES:
            path = Path(source) / name
            if path.is_dir():
                shutil.copytree(path, out / name)
            elif path.exists():
                shutil.copyfile(path, out / name)
        return
    from transformers import AutoTokenizer

    AutoTokenizer.from_pretrained(source).save_pretrained(out)


def end_tokens(policy: Policy) -> frozenset[int]:
    """Token ids that end a completion, from the model's configuration."""
    found: set[int] = set()
    holders = [policy.causal.config, getattr(policy.causal, "generation_config", None)]
    for holder in holders:
        value = getattr(holder, "eos_token_id", None)
        found.update([value] if isinstance(value, int) else value or [])
    return frozenset(found)
