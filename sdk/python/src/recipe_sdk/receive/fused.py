"""Where a trainer's tensors belong in a model that an engine serves with fused layers, as vLLM and SGLang do.

A dense model on one GPU is written directly, each tensor into its place in the engine's fused parameters; everything
else goes through the engine's own loader. What cannot fit is refused with the tensor's name before anything is touched.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch

from .made import Made
from .refused import Refused

Packed = Mapping[str, "list[str]"]  # name of a fused layer, and those of its parts in a checkpoint
#: How an engine makes a layer of a checkpoint's tensors; None where its weight is one of them, or several on top of
#: each other.
Makes = Callable[[Any], "Made | None"]


def bare(layer: Any) -> Any:
    """The layer itself, where LoRA has wrapped it."""
    return getattr(layer, "base_layer", layer)


def fit(
    model: Any, tensors: dict[str, torch.Tensor], packed: Packed, direct: bool = True, makes: Makes | None = None
) -> tuple[list[Any] | None, str]:
    """(the place of each tensor in the model, "") or (None, why the engine's loader has to place them).

    direct: parameters may be written in place, that is: no layer keeps a packed copy of its own.
    Raises Refused when names or shapes show that the two models differ.
    """
    params = {n.replace(".base_layer.", "."): p for n, p in model.named_parameters()}
    modules = {n.replace(".base_layer", ""): m for n, m in model.named_modules()}
    part_of = {part: (fused, i) for fused, parts in packed.items() for i, part in enumerate(parts) if part != fused}
    if any(".experts." in n for n in params):
        return None, "a mixture of experts"
    spread = any((getattr(bare(m), "tp_size", None) or 1) > 1 for m in modules.values())
    places: list[Any] = []
    filled: dict[str, int] = {}
    made = _made(params, modules, makes)
    why = "" if direct else "layers keep packed copies of their weights"
    if spread:
        why = "layers are spread over several GPUs"
    for name, tensor in tensors.items():
        place = _place(name, params, modules, part_of)
        if place is None:
            if "lm_head" in name and tied(model):
                places.append(None)
                why = why or "an output head that the server shares with the embedding"
                continue
            raise Refused(f"the served model has no parameter for the trainer's {name} {list(tensor.shape)}")
        target, whole, i = place
        if whole in made and i < len(made[whole].parts):
            target = made[whole].parts[i]
        elif target.dtype == torch.float8_e4m3fn:
            raise Refused(
                f"{name} was in float8 already in the model that the server has loaded: serve the one that it was made "
                f"of, of which the server can make float8 itself"
            )
        filled[whole] = filled.get(whole, 0) + target.shape.numel()
        if target.shape.numel() == 0:  # packed away by the CPU's kernels
            why = why or f"{name} is packed by the server"
        elif target.shape != tensor.shape:
            rows = len(target.shape) and target.shape[1:] == tensor.shape[1:] and target.shape[0] > tensor.shape[0]
            padded = rows and ("embed" in name or "lm_head" in name)
            if not padded and not spread:
                raise Refused(
                    f"{name} has shape {list(tensor.shape)} in the trainer and {list(target.shape)} in the server"
                )
            why = why or f"{name} has another memory layout in the server"
        if target.dtype != tensor.dtype and not (target.dtype.is_floating_point and tensor.is_floating_point()):
            why = why or f"{name} is {tensor.dtype} in the trainer and {target.dtype} in the server"
        places.append(target)
    numbers = {name: made[name].numel() if name in made else p.numel() for name, p in params.items()}
    for name, p in params.items():
        exempt = ".lora_" in name or name.endswith(("_scale", "_scale_inv")) or ("lm_head" in name and tied(model))
        if name not in filled and not exempt:
            raise Refused(f"the trainer publishes no tensor for the server's {name} {list(p.shape)}")
        if not why and name in filled and filled[name] != numbers[name]:
            raise Refused(f"the trainer publishes {filled[name]} of the {numbers[name]} numbers of the server's {name}")
    return (None, why) if why else (places, "")


def _place(
    name: str, params: dict[str, Any], modules: dict[str, Any], part_of: dict[str, tuple[str, int]]
) -> tuple[Any, str, int] | None:
    """(the view that a checkpoint's tensor fills, the parameter that it belongs to, which part of it), or None."""
    if name in params:
        return params[name].data, name, 0
    prefix, _, leaf = name.rpartition(".")
    path, _, part = prefix.rpartition(".")
    if part not in part_of:
        return None
    fused, i = part_of[part]
    whole = f"{path}.{fused}.{leaf}" if path else f"{fused}.{leaf}"
    if whole not in params:
        return None
    module = bare(modules[whole.rpartition(".")[0]])
    sizes = getattr(module, "output_partition_sizes", None) or getattr(module, "output_sizes", None)
    data = params[whole].data
    if not sizes or len(sizes) <= i or data.ndim == 0 or sum(sizes) != data.shape[0]:
        return data, whole, i  # of another shape, so it goes through the loader
    start = sum(sizes[:i])
    return data[start : start + sizes[i]], whole, i


def _made(params: Mapping[str, Any], modules: Mapping[str, Any], makes: Makes | None) -> dict[str, Made]:
    """The parameters that the engine makes of a checkpoint's tensors, by name."""
    if makes is None:
        return {}
    found = {n: makes(bare(modules[n.removesuffix(".weight")])) for n in params if n.endswith(".weight")}
    return {n: layer for n, layer in found.items() if layer is not None}


def tied(model: Any) -> bool:
    """Whether the output head is the embedding."""
    config = getattr(model, "config", None)
    config = getattr(config, "text_config", None) or config
    return bool(getattr(config, "tie_word_embeddings", False))
