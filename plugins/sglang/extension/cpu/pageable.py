"""Lets PyTorch ignore requests for page-locked memory, which it refuses where there is no GPU.

SGLang asks for it wherever it prepares a batch of LoRA adapters, also with --device cpu: page-locked memory makes
copies to a GPU faster, and changes no value.
"""

import functools

import torch

# Every function of PyTorch by which SGLang asks for page-locked memory.
FACTORIES = ("arange", "empty", "tensor", "zeros")


def install():
    """Drop pin_memory from PyTorch's factories, and have Tensor.pin_memory return the tensor itself. Works once."""
    if hasattr(torch.Tensor.pin_memory, "__wrapped__"):
        return
    for name in FACTORIES:
        setattr(torch, name, _pageable(getattr(torch, name)))

    @functools.wraps(torch.Tensor.pin_memory)
    def pin_memory(tensor, device=None):
        return tensor

    torch.Tensor.pin_memory = pin_memory


def _pageable(factory):
    @functools.wraps(factory)
    def make(*args, pin_memory=False, **kwargs):
        return factory(*args, **kwargs)

    return make
