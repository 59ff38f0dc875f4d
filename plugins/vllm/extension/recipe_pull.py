"""Where a trainer's tensors belong in a model that vLLM serves. How they arrive is recipe_sdk.receive's.

A dense model on one GPU is written directly, each tensor into its place in vLLM's fused parameters; everything else goes through
vLLM's own loader. What cannot fit is refused with the tensor's name before anything is touched.
"""

from recipe_sdk.receive import puller
from recipe_sdk.receive.handles import Refused


class Puller(puller.Puller):
    """The tensors of one trainer, and where each of them belongs in the model."""

    def __init__(self, model, handles, direct=True, device=None):
        """direct: parameters may be written in place, that is: no layer keeps a packed copy of its own."""
        super().__init__(handles, lambda tensors: fit(model, tensors, direct), device)


def bare(layer):
    """The layer itself, where LoRA has wrapped it."""
    return getattr(layer, "base_layer", layer)


def fit(model, tensors, direct=True):
    """(the place of each tensor in the model, "") or (None, why vLLM's loader has to place them).

    Raises Refused when names or shapes show that the two models differ.
    """
    params = {n.replace(".base_layer.", "."): p for n, p in model.named_parameters()}
    modules = {n.replace(".base_layer", ""): m for n, m in model.named_modules()}
    packed = getattr(model, "packed_modules_mapping", None) or {}
    part_of = {part: (fused, i) for fused, parts in packed.items() for i, part in enumerate(parts) if part != fused}
    if any(".experts." in n for n in params):
        return None, "a mixture of experts"
    spread = any(getattr(bare(m), "tp_size", 1) > 1 for m in modules.values())
    places, filled, why = [], {}, "" if direct else "layers keep packed copies of their weights"
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
        target, whole = place
        filled.setdefault(whole, 0)
        filled[whole] += target.numel()
        if target.numel() == 0:  # packed away by the CPU's kernels
            why = why or f"{name} is kept in another form"
        elif target.shape != tensor.shape:
            rows = target.ndim and target.shape[1:] == tensor.shape[1:] and target.shape[0] > tensor.shape[0]
            padded = rows and ("embed" in name or "lm_head" in name)
            if not padded and not spread:
                raise Refused(f"{name} has shape {list(tensor.shape)} in the trainer and {list(target.shape)} in the server")
            why = why or f"{name} is laid out otherwise in the server"
        if target.dtype != tensor.dtype and not (target.is_floating_point() and tensor.is_floating_point()):
            why = why or f"{name} is {tensor.dtype} in the trainer and {target.dtype} in the server"
        places.append(target)
    for name, p in params.items():
        exempt = ".lora_" in name or name.endswith("_scale") or ("lm_head" in name and tied(model))
        if name not in filled and not exempt:
            raise Refused(f"the trainer publishes nothing for the server's {name} {list(p.shape)}")
        if not why and name in filled and filled[name] != p.numel():
            raise Refused(f"the trainer publishes {filled[name]} of the {p.numel()} numbers of the server's {name}")
    return (None, why) if why else (places, "")


def _place(name, params, modules, part_of):
    """(the view that a checkpoint's tensor fills, the parameter that it belongs to), or None."""
    if name in params:
        return params[name].data, name
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
        return data, whole  # of another shape, so it goes through the loader
    start = sum(sizes[:i])
    return data[start : start + sizes[i]], whole


def tied(model):
    """Whether the output head is the embedding."""
    config = getattr(model, "config", None)
    config = getattr(config, "text_config", None) or config
    return bool(getattr(config, "tie_word_embeddings", False))
