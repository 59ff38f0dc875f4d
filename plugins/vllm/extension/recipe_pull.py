"""Where a trainer's tensors belong in a model that vLLM serves: recipe_sdk.receive has the rules, vLLM's models say
what they fuse, and vLLM's quantization what becomes of a layer's weights."""

import copy

import torch
from recipe_sdk.receive import puller
from recipe_sdk.receive.fused import bare, fit, tied
from recipe_sdk.receive.refused import Refused
from recipe_sdk.receive.made import Made

try:
    from vllm.model_executor.parameter import ModelWeightParameter as Loaded
except ImportError:
    Loaded = torch.nn.Parameter

__all__ = ["Puller", "Refused", "bare", "made", "quantized", "tied"]


class Puller(puller.Puller):
    """The tensors of one trainer, and where each of them belongs in the model."""

    def __init__(self, model, handles, direct=True, device=None):
        """direct: parameters may be written in place, that is: no layer keeps a packed copy of its own."""
        packed = getattr(model, "packed_modules_mapping", None) or {}
        super().__init__(handles, lambda tensors: fit(model, tensors, packed, direct, made), device)


def quantized(layer):
    """Whether vLLM quantizes what this layer loads (vllm/model_executor/layers/quantization/online)."""
    method = type(getattr(layer, "quant_method", None))
    return getattr(method, "uses_meta_device", False) and ".quantization.online." in method.__module__


def made(layer):
    """How vLLM makes this layer of a checkpoint's tensors; None: it takes them as they are."""
    if not quantized(layer):
        return None
    width, dtype = layer.input_size_per_partition, layer.orig_dtype
    return Made(lambda weight: _requantize(layer, weight), layer.logical_widths, width, dtype)


def _loaded(weight):
    """The weight as a tensor of the class that vLLM's loader gives it. Some of vLLM's quantizations are compiled, by
    class and shape: for another class they would be compiled anew at the first update, for 14 s on an H200."""
    weight = weight.detach()
    weight.__class__ = Loaded
    return weight


def _requantize(layer, weight):
    """Has vLLM quantize the weight as it does at its start, and writes the result where CUDA graphs look for it."""
    shadow = copy.copy(layer)
    shadow._parameters = {**layer._parameters, "weight": _loaded(weight)}
    shadow._buffers = dict(layer._buffers)
    shadow.__dict__.pop("_already_called_process_weights_after_loading", None)
    layer.quant_method.process_weights_after_loading(shadow)
    for name, old in layer._parameters.items():
        new = shadow._parameters[name]
        if old is not None and new is not old:
            if new.shape != old.shape:
                raise RuntimeError(f"vLLM made {name} of shape {list(new.shape)} of new weights, not {list(old.shape)}")
            old.data.copy_(new.data)
