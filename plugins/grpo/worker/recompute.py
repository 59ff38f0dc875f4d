"""Activations that are not kept for the backward pass, which calculates them again: of some layers, or of all.

What attention has found can be kept nevertheless. That is as much memory as a layer's input, for work that grows with
the square of a sequence's length. And where nothing else is recomputed, it can be all but products: what lies between
them, norms and an activation function's product, is a third of the memory and a hundredth of the time.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.utils.checkpoint import CheckpointPolicy, checkpoint, create_selective_checkpoint_contexts

#: What of a layer can be kept while the rest is calculated again.
NOTHING, ATTENTION, PRODUCTS = "nothing", "attention", "products"

#: Operations of torch that multiply. Of those that are not torch's (attention, adapters, float8) nothing is known, so
#: they count as such.
_MULTIPLY = (
    "mm", "addmm", "bmm", "baddbmm", "_scaled_mm", "_grouped_mm", "_scaled_grouped_mm", "convolution",
    "_scaled_dot_product_flash_attention", "_scaled_dot_product_efficient_attention",
    "_scaled_dot_product_cudnn_attention",
)  # fmt: skip


def _but_attention(_context: Any, op: Any, *_: Any, **__: Any) -> CheckpointPolicy:
    return _saved(op is torch.ops.recipe.packed_attention.default)


def _but_products(_context: Any, op: Any, *_: Any, **__: Any) -> CheckpointPolicy:
    return _saved(op.namespace != "aten" or op.overloadpacket.__name__ in _MULTIPLY)


def _saved(yes: bool) -> CheckpointPolicy:
    return CheckpointPolicy.MUST_SAVE if yes else CheckpointPolicy.PREFER_RECOMPUTE


def _context(policy: Callable[..., CheckpointPolicy]) -> dict[str, Any]:
    return {"context_fn": functools.partial(create_selective_checkpoint_contexts, policy)}


# One object for all layers: compiled code is compiled again for another.
_KEPT: dict[str, dict[str, Any]] = {
    NOTHING: {}, ATTENTION: _context(_but_attention), PRODUCTS: _context(_but_products),
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
    kept = _KEPT[ATTENTION if attention else NOTHING]
    causal.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False, **kept})
    if getattr(causal, "_require_grads_hooks", None):  # of use to the reentrant kind only
        causal.disable_input_require_grads()
    if by_layer(backbone):
        for k, layer in enumerate(backbone.layers):  # type: ignore[arg-type]
            layer.gradient_checkpointing = k < first


def wrapped(forward: Callable[..., Any], keep: str) -> Callable[..., Any]:
    """A layer's forward pass that calculates all but `keep` again, to be compiled as a whole: the compiler leaves out
    of the recomputation what the backward pass does not need, which is a third of a layer's products."""
    kept = _KEPT[keep]

    # Two functions, because a model has layers of both kinds: of one, each kind would be a recompilation of the other.

    def recomputing(*args: Any, **kwargs: Any) -> Any:
        return checkpoint(forward, *args, use_reentrant=False, **kept, **kwargs)

    def keeping_products(*args: Any, **kwargs: Any) -> Any:
        return checkpoint(forward, *args, use_reentrant=False, **kept, **kwargs)

    return keeping_products if keep == PRODUCTS else recomputing
