"""Weights on disk in the format of transformers, written so that a reader never sees half of a folder."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterator
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
    from safetensors import torch as safetensors

    parts: list[dict[str, Tensor]] = [{}]
    files: dict[str, int] = {}
    size, total, kinds = 0, 0, set()

    def flush(k: int) -> None:
        assert out is not None  # nothing is gathered without it
        safetensors.save_file(parts[k], out / f"part-{k:05d}.safetensors", metadata={"format": "pt"})
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
        labels = [f"model-{k + 1:05d}-of-{len(parts):05d}.safetensors" for k in range(len(parts))]
        for k in range(len(parts)):
            os.replace(out / f"part-{k:05d}.safetensors", out / labels[k])
        index = {"metadata": {"total_size": total}, "weight_map": {n: labels[k] for n, k in files.items()}}
        (out / "model.safetensors.index.json").write_text(json.dumps(index, indent=1))
    return {"bytes": total, "tensors": len(files), "dtype": "+".join(sorted(kinds))}


def save_model(
    items: Iterator[tuple[str, Tensor]], out: Path | None, source: str, *, dtype: str | None = None,
    untie: bool = False, config: Callable[[Path], None] | None = None,
) -> dict[str, Any]:  # fmt: skip
    """The model as a folder that transformers and vLLM load; out = None only takes part in the collectives. source:
    the model that training began with, whose tokenizer and, without `config`, whose config.json are taken. untie: the
    items hold the output head of a tied model as a weight of its own (vLLM's CPU build keeps the head at its old
    values on a reload otherwise)."""
    facts = save_tensors(items, out, dtypes.DTYPES[dtype] if dtype else None)
    if out is None:
        return {}
    (config or (lambda folder: copy_config(source, folder)))(out)
    path = out / "config.json"
    content = json.loads(path.read_text(encoding="utf-8"))
    content["dtype"] = facts["dtype"].split("+")[0]
    content.pop("torch_dtype", None)  # the same, in the words of transformers before 4.56
    if untie:
        content["tie_word_embeddings"] = False
    path.write_text(json.dumps(content, indent=2), encoding="utf-8")
    save_tokenizer(out, source)
    return facts


def save_adapter(
    items: Iterator[tuple[str, Tensor]], out: Path | None, source: str, config: Callable[[Path], None],
    dtype: str | None = None,
) -> dict[str, Any]:  # fmt: skip
    """The adapter as peft and vLLM load it. config: writes adapter_config.json into a folder."""
    facts = save_tensors(items, out, dtypes.DTYPES[dtype] if dtype else None)
    if out is None:
        return {}
    os.replace(out / "model.safetensors", out / "adapter_model.safetensors")
    config(out)
    path = out / "adapter_config.json"
    content = json.loads(path.read_text(encoding="utf-8"))
    content.update(base_model_name_or_path=source, inference_mode=True)
    path.write_text(json.dumps(content, indent=2), encoding="utf-8")
    return facts


def copy_config(source: str, out: Path) -> None:
    """config.json of a model, byte for byte where it is a folder."""
    if Path(source).is_dir():
        shutil.copyfile(Path(source) / "config.json", out / "config.json")
        return
    from transformers import AutoConfig

    loaded: Any = AutoConfig.from_pretrained(source)
    loaded.save_pretrained(out)


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

    tokenizer: Any = AutoTokenizer.from_pretrained(source)
    tokenizer.save_pretrained(out)
