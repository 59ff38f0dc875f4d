"""A causal language model of transformers, inside peft's wrapper or not: its weights under the names that inference
loads, and as files."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor


def base(model: Any) -> Any:
    """The transformers model itself, inside peft's wrapper if there is one."""
    return model.get_base_model() if hasattr(model, "peft_config") else model


def whole(p: Tensor) -> Tensor:
    """A parameter's full value; a collective when it is sharded."""
    p = p.detach()
    gather = getattr(p, "full_tensor", None)
    return gather() if gather is not None else p


@torch.no_grad()
def named(model: Any) -> Iterator[tuple[str, Tensor]]:
    """(name, value) of every weight of the plain model, adapters merged in, on the training device; tied weights once.

    Under sharding every rank must run through it in step."""
    causal = base(model)
    stored = causal.state_dict().keys()
    for name, p in list(causal.named_parameters()) + [(n, b) for n, b in causal.named_buffers() if n in stored]:
        if ".lora_" in name:
            continue
        value = _dequantized(causal.get_submodule(name.rpartition(".")[0]), whole(p))
        if name.endswith(".base_layer.weight"):
            module = causal.get_submodule(name.removesuffix(".base_layer.weight"))
            a, b = whole(module.lora_A["default"].weight), whole(module.lora_B["default"].weight)
            wide = torch.float64 if value.dtype == torch.float64 else torch.float32
            scale = module.scaling["default"]
            value = torch.addmm(value.to(wide), b.to(wide), a.to(wide), alpha=scale).to(value.dtype)
        yield name.replace(".base_layer.", "."), value


def _dequantized(layer: Any, value: Tensor) -> Tensor:
    """A layer's weight as numbers, also where bitsandbytes holds it in 4 or 8 bits, with adapters or without. Its type
    says nothing: Axolotl has four bits stored in bfloat16, so that they can be sharded."""
    if type(getattr(layer, "weight", None)).__name__ not in ("Params4bit", "Int8Params"):
        return value
    from peft.utils.integrations import dequantize_module_weight

    found: Tensor = dequantize_module_weight(layer)
    return found


def unmergeable(model: Any) -> str | None:
    """The first layer whose adapter `named` cannot merge into its weight, with its type; None: there is none."""
    for name, layer in base(model).named_modules():
        other = hasattr(layer, "base_layer") and not hasattr(layer, "lora_A")
        if other or (hasattr(layer, "lora_A") and ("default" not in layer.lora_A or getattr(layer, "lora_variant", None)
                                                   or getattr(layer, "fan_in_fan_out", False))):  # fmt: skip
            return f"{name}, a {type(layer.base_layer).__name__}"
    return None


@torch.no_grad()
def adapter(model: Any) -> Iterator[tuple[str, Tensor]]:
    """(name, value) of the adapter's weights under peft's file names."""
    for name, p in model.named_parameters():
        if ".lora_" in name:
            yield name.replace(".default.weight", ".weight"), whole(p)


def tied(model: Any) -> dict[str, str]:
    """Under which name the output head of a tied model would be written out, and which weight it is."""
    causal = base(model)
    shared = causal.get_input_embeddings().weight
    again = next((n for n, p in causal.named_parameters() if p is shared), None)
    return {"lm_head.weight": again} if causal.config.tie_word_embeddings and again else {}


def write_config(model: Any, out: Path) -> None:
    """config.json beside the model's weights."""
    causal = base(model)
    causal.config.save_pretrained(out)
    path = out / "config.json"
    config = json.loads(path.read_text(encoding="utf-8"))
    config["architectures"] = [type(causal).__name__.removeprefix("FSDP")]
    config.pop("quantization_config", None)  # named gives the weights as numbers
    path.write_text(json.dumps(config, indent=2), encoding="utf-8")


def write_adapter_config(model: Any, out: Path) -> None:
    """adapter_config.json beside the adapter's weights."""
    model.peft_config["default"].save_pretrained(out)


def end_tokens(model: Any) -> frozenset[int]:
    """Token ids that end a completion, from the model's configuration."""
    found: set[int] = set()
    causal = base(model)
    for holder in (causal.config, getattr(causal, "generation_config", None)):
        value = getattr(holder, "eos_token_id", None)
        found.update([value] if isinstance(value, int) else value or [])
    return frozenset(found)
