"""Whether verl keeps the sequences of a packed row apart.

It tells attention where each begins. Layers with a convolution or a recurrent state it tells only in Qwen3.5
(verl/models/transformers/qwen3_5.py); in other families they would go on from one sequence to the next."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

ATTENTION = {"full_attention", "sliding_attention", "chunked_attention"}  # transformers' names of kinds of layers
# Settings of layers that carry a state, by which a configuration without a list of its layers is known.
STATEFUL = ("mamba_d_conv", "mamba_num_heads", "conv_kernel", "linear_conv_kernel_dim", "conv_L_cache", "block_types")
TOLD = {"qwen3_5", "qwen3_5_moe"}


def mixed(config: Mapping[str, Any]) -> bool:
    """Whether sequences of one row would be mixed, by the model's config.json."""
    if config.get("model_type") in TOLD:
        return False
    text = config.get("text_config") or config
    kinds = set(text.get("layer_types") or ())
    lightning = 0 in (text.get("attn_type_list") or ())  # MiniMax's name of a kind
    return not kinds <= ATTENTION or lightning or any(text.get(name) is not None for name in STATEFUL)
