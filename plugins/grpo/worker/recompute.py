"""Activations that are not kept for the backward pass, which calculates them again: of some layers, or of all.

What attention has found can be kept nevertheless. That is as much memory as a layer's input, for work that grows with
the square of a sequence's length.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.utils.checkpoint import CheckpointPolicy, checkpoint, create_selective_checkpoint_contexts


def _but_attention(_context: Any, op: Any, *_: Any, **__: Any) -> CheckpointPolicy:
    if op is torch.ops.recipe.packed_attention.default:
        return CheckpointPolicy.MUST_SAVE
    return CheckpointPolicy.PREFER_RECOMPUTE


# One object for all layers: compiled code is compiled again for another.
_KEPT: dict[bool, dict[str, Any]] = {
    False: {}, True: {"context_fn": functools.partial(create_selective_checkpoint_contexts, _but_attention)},
}  # fmt: skip


def by_layer(model: nn.Module) -> bool:
    """Whether each decoder layer of a transformers model decides by itself if its activations are recomputed."""
    from transformers.modeling_layers import GradientCheckpointingLayer

    layers = getattr(model, "layers", ())
    return len(layers) > 0 and all(isinstance(x, GradientCheckpointingLayer) for x in layers)


def by_transformers(causal: Any, backbone: nn.Module, first: int, attention: bool) -> None:
    """For a model that is not compiled: its first layers recompute, and no others (0: none). attention: what attention
    has found in them is kept."""
    causal.gradient_checkpointing_disable()
    if not first:
        return
    causal.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False, **_KEPT[attention]})
    if getattr(causal, "_require_grads_hooks", None):  # of use to the reentrant kind only
        causal.disable_input_require_grads()
    if by_layer(backbone):
        for k, layer in enumerate(backbone.layers):  # type: ignore[arg-type]
            layer.gradient_checkpointing = k < first


def wrapped(forward: Callable[..., Any], attention: bool) -> Callable[..., Any]:
    """A layer's forward pass, to be compiled as a whole: the compiler leaves out of the recomputation what the backward
    pass does not need, which is a third of a layer's products."""
    kept = _KEPT[attention]

    def recomputing(*args: Any, **kwargs: Any) -> Any:
        return checkpoint(forward, *args, use_reentrant=False, **kept, **kwargs)

    return recomputing
