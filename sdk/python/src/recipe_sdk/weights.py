"""Weights on disk in the format of transformers, written so that a reader never sees half of a folder."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from . import dtypes

SHARD_BYTES = 4 << 30
TOKENIZER_FILES = (
    "tokenizer.json", "tokenizer_config.json", "tokenizer.model", "vocab.json", "vocab.txt", "merges.txt",
    "special_tokens_map.json", "added_tokens.json", "chat_template.jinja", "chat_template.json",
    "generation_config.json", "additional_chat_templates",
)  # fmt: skip


def save_tensors(items: Iterator[tuple[str, Tensor]], out: Path | None, dtype: torch.dtype | None) -> dict[str, Any]:
    """Streams weights into safetensors files of at most 4 GiB; out = None only takes part in the collectives."""
    try:
        return _write_tensors(items, out, dtype)
    except Exception:
        for _ in items:  # a full disk is rank 0's alone: the other ranks go through all of them
            pass
        raise


def _write_tensors(items: Iterator[tuple[str, Tensor]], out: Path | None, dtype: torch.dtype | None) -> dict[str, Any]:
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
            kinds.add(dtypes.name(value.dtype))
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
