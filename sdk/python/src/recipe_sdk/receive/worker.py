"""What a worker of an inference engine does for recipe, whatever the engine: it says what it can reach, takes a
trainer's weights, and writes the adapter that is served before the first one is trained. Answers are dictionaries that
the engine's plugin reads (sdk/kit/engine: Copied, WorkerFacts)."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from typing import Any

import torch

from . import handles
from .puller import Loader, Puller
from .refused import Refused


def facts(dtype: torch.dtype, device: str) -> dict[str, Any]:
    """What decides how weights can arrive, and how exactly they compute."""
    return {
        "reach": handles.reach(), "machine": handles.machine(), "arithmetic": handles.arithmetic(dtype),
        "device": device,
    }  # fmt: skip


class Attachment:
    """The tensors of the trainer that publishes, if any."""

    def __init__(self) -> None:
        self.puller: Puller | None = None

    def attach(self, published: str, open_: Callable[[dict[str, Any]], Puller]) -> dict[str, Any]:
        """Opens a trainer's tensors, or the way to receive them; published is its JSON text. Those of an earlier
        trainer are let go."""
        if self.puller is not None:
            self.puller.close()
        self.puller = None
        if torch.cuda.is_available():
            torch.cuda.ipc_collect()
        try:
            self.puller = open_(json.loads(published))
        except Refused as e:
            return {"refused": str(e)}
        return {"bytes": self.puller.bytes, "why": self.puller.why}

    def pull(self, key: str, version: int, load: Loader) -> dict[str, Any]:
        """Copies a version from the tensors that were attached as key; load is the engine's loader."""
        if self.puller is None or self.puller.handles["key"] != key:
            return {"unknown": True}
        try:
            return self.puller.pull(version, load)
        except Refused as e:
            return {"refused": str(e)}


def write_zero_adapter(path: str, config: Any, projection: str) -> None:
    """Writes a LoRA adapter of rank 1 that changes nothing to the folder path, for q_proj or o_proj of the first layer
    of the model with transformers' config."""
    from safetensors.torch import save_file

    config = getattr(config, "text_config", None) or config
    heads = config.num_attention_heads
    inner, outer = heads * (getattr(config, "head_dim", None) or config.hidden_size // heads), config.hidden_size
    taken, given = {"q_proj": (outer, inner), "o_proj": (inner, outer)}[projection]
    name = f"base_model.model.model.layers.0.self_attn.{projection}.lora_"
    tensors = {name + "A.weight": torch.zeros(1, taken), name + "B.weight": torch.zeros(given, 1)}
    os.makedirs(path, exist_ok=True)
    save_file(tensors, os.path.join(path, "adapter_model.safetensors"))
    settings = {"peft_type": "LORA", "task_type": "CAUSAL_LM", "r": 1, "lora_alpha": 1, "target_modules": [projection],
                "bias": "none"}  # fmt: skip
    with open(os.path.join(path, "adapter_config.json"), "w", encoding="utf-8") as f:
        json.dump(settings, f)
