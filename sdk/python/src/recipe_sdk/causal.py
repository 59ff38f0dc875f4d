"""A causal language model of transformers, inside peft's wrapper or not: its weights under the names that inference
loads, and as files."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
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


@dataclass
class _Weight:
    """A parameter or a buffer that is stored, under its name in the plain model."""

    name: str
    value: Tensor
    module: Any  # that holds it
    layer: Any = None  # of peft, whose adapter belongs to it

    def whole(self) -> Tensor:
        return _dequantized(self.module, whole(self.value))


@torch.no_grad()
def named(model: Any) -> Iterator[tuple[str, Tensor]]:
    """(name, value) of every weight of the plain model, adapters merged in, on the training device; tied weights once.
    Those that have adapters which are not merged already come last.

    Under sharding every rank must run through it in step."""
    adapted: list[_Weight] = []
    for w in _weights(base(model)):
        if w.layer is None or w.layer.merged:
            yield w.name, w.whole()
        else:
            adapted.append(w)
    for w in adapted:
        yield w.name, _merged(w)


def _weights(root: Any) -> Iterator[_Weight]:
    """Parameters, then buffers, each once. Modules are gone through once and adapters left out: torch's own ways to
    names take 12 ms of the CPU for 28 layers with adapters, at every publication."""
    seen: set[int] = set()
    buffers: list[_Weight] = []
    todo = [("", root, None)]
    while todo:
        prefix, module, layer = todo.pop()
        if id(module) in seen:
            continue
        seen.add(id(module))
        name = prefix.replace(".base_layer.", ".")
        for key, p in module._parameters.items():
            if p is not None and id(p) not in seen and not key.startswith("lora_"):
                seen.add(id(p))
                yield _Weight(name + key, p, module, layer if key == "weight" else None)
        for key, b in module._buffers.items():
            if b is not None and id(b) not in seen and key not in module._non_persistent_buffers_set:
                seen.add(id(b))
                buffers.append(_Weight(name + key, b, module))
        own = module if "lora_A" in module._modules else None
        for key, child in reversed(module._modules.items()):
            if child is not None and not key.startswith("lora_"):
                todo.append((f"{prefix}{key}.", child, own if key == "base_layer" else None))
    yield from buffers


def _merged(w: _Weight) -> Tensor:
    """A weight with its adapter, computed in float32 or wider."""
    value = w.whole()
    a, b = (whole(x["default"].weight) for x in (w.layer.lora_A, w.layer.lora_B))
    wide = torch.float64 if value.dtype == torch.float64 else torch.float32
    return torch.addmm(value.to(wide), b.to(wide), a.to(wide), alpha=w.layer.scaling["default"]).to(value.dtype)


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


def unadapted(model: Any) -> list[str]:
    """What target_modules names and no layer is called. peft passes over it, where there are others."""
    names = [name for name, layer in base(model).named_modules() if hasattr(layer, "lora_A")]
    targets = {t for c in model.peft_config.values() for t in c.target_modules if not isinstance(c.target_modules, str)}
    return sorted(t for t in targets if not any(f".{name}".endswith(f".{t}") for name in names))


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
