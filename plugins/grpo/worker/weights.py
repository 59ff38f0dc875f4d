"""The policy's weights by name, and as folders that transformers, peft and vLLM load."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import torch
from torch import Tensor

from .model import Policy


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


def tied(policy: Policy) -> dict[str, str]:
    """Under which name the output head of a tied model would be written out, and which weight it is."""
    shared = policy.causal.get_input_embeddings().weight
    again = next((n for n, p in policy.causal.named_parameters() if p is shared), None)
    return {"lm_head.weight": again} if policy.causal.config.tie_word_embeddings and again else {}


def write_config(policy: Policy, out: Path) -> None:
    """config.json beside the policy's weights."""
    policy.causal.config.save_pretrained(out)
    path = out / "config.json"
    config = json.loads(path.read_text())
    config["architectures"] = [type(policy.causal).__name__]
    path.write_text(json.dumps(config, indent=2))


def write_adapter_config(policy: Policy, out: Path) -> None:
    """adapter_config.json beside the adapter's weights."""
    policy.model.peft_config["default"].save_pretrained(out)


def end_tokens(policy: Policy) -> frozenset[int]:
    """Token ids that end a completion, from the model's configuration."""
    found: set[int] = set()
    holders = [policy.causal.config, getattr(policy.causal, "generation_config", None)]
    for holder in holders:
        value = getattr(holder, "eos_token_id", None)
        found.update([value] if isinstance(value, int) else value or [])
    return frozenset(found)
