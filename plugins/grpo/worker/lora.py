"""Adapters by peft, with a forward pass that calculates in the precision of what comes in.

peft's own casts the input to the adapter's float32 first, so that its matmuls run at a fraction of the speed of a
16-bit one and its graph is several times as large to compile.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from peft import LoraConfig, get_peft_model
from peft.tuners.lora.layer import Linear
from recipe_sdk.errors import WorkerError
from torch import Tensor, nn

from . import float8
from .config import Config
from .factors import merged_linear

TARGETS = "lora.target_modules"


class ModelError(WorkerError):
    """The model cannot be trained as configured; the text says what to change."""

    code = "model"


class Adapted(Linear):  # type: ignore[misc]
    """A linear layer with one adapter, without dropout."""

    def forward(self, x: Tensor) -> Tensor:
        """base(x) + scaling B A x. The adapter's weights are float32 and rounded to the precision of x here, as
        autocast would; their gradients arrive in float32. Merged, the base holds the sum (merged.Merged)."""
        a, b = self.lora_A["default"].weight, self.lora_B["default"].weight
        if self.merged_adapters:
            base, scale = self.base_layer, self.scaling["default"]
            if isinstance(base, float8.Linear) and not base.exact:
                return float8.merged_linear(x, base, a, b, self.near_a, self.near_b, scale)
            return merged_linear(x, base.weight, base.bias, a, b, self.near_a, self.near_b, scale)
        out = self.base_layer(x)
        if self._disable_adapters:
            return out
        inner = F.linear(x, a.to(x.dtype)).flatten(0, -2)
        # one operation: what it adds up is neither written nor kept by itself
        return torch.addmm(out.flatten(0, -2), inner, (b.to(x.dtype) * self.scaling["default"]).t()).view_as(out)


def adapt(model: nn.Module, c: Config) -> Any:
    """The model with adapters in the layers that the configuration names."""
    targets: Any = list(c.lora.target_modules)
    if targets == ["all-linear"]:  # of some layers only, peft takes them by name
        targets = _linear(model) if c.lora.layers else "all-linear"
    elif "lm_head" in targets:
        raise ModelError("lora.target_modules: lm_head cannot be adapted (logits are computed in chunks)",
                         ["Remove it from the list."], setting=TARGETS)  # fmt: skip
    options = LoraConfig(
        r=c.lora.rank, lora_alpha=c.lora.alpha, lora_dropout=c.lora.dropout, target_modules=targets,
        layers_to_transform=list(c.lora.layers) if c.lora.layers else None, use_rslora=c.lora.rank_stabilized,
        bias="none", task_type="CAUSAL_LM",
    )  # fmt: skip
    try:
        adapted: Any = get_peft_model(model, options)  # adapters in float32 on bfloat16 weights: small updates are kept
    except ValueError as e:
        setting = "lora.layers" if c.lora.layers else TARGETS
        raise ModelError(f"{setting}: {e}", ["Check lora.target_modules and lora.layers.",
                                             f"The model's linear layers are {', '.join(_linear(model))}."],
                         setting=setting) from e  # fmt: skip
    _check_names(adapted, c)
    for name, layer in adapted.get_base_model().named_modules():
        # Else the first publication would be where it shows.
        if hasattr(layer, "lora_A") and ("default" not in layer.lora_A or getattr(layer, "fan_in_fan_out", False)):
            raise ModelError(f"lora.target_modules: adapters of {name}, a {type(layer.base_layer).__name__}, cannot be "
                             "merged into its weights",
                             ["Remove it from the list, or train all weights: no block lora."],
                             setting=TARGETS)  # fmt: skip
        if type(layer) is Linear and not c.lora.dropout and not layer.lora_variant:
            layer.__class__ = Adapted
    # Frozen embeddings give the first layer an input without gradient. With one, all layers compile to the same code.
    adapted.get_base_model().get_input_embeddings().register_forward_hook(_with_gradient)
    return adapted


def _linear(model: nn.Module) -> list[str]:
    """The last parts of the names of all linear layers but the output head."""
    head = model.get_output_embeddings()
    found = {n.rsplit(".", 1)[-1] for n, m in model.named_modules() if isinstance(m, nn.Linear) and m is not head}
    return sorted(found)


def _check_names(adapted: Any, c: Config) -> None:
    """Refuses names and numbers of layers of which peft has found none: it says nothing as long as another is found."""
    names = [n for n, m in adapted.get_base_model().named_modules() if hasattr(m, "lora_A")]
    for target in c.lora.target_modules:
        if target != "all-linear" and not any(f".{n}".endswith(f".{target}") for n in names):
            known = ", ".join(sorted({n.rsplit(".", 1)[-1] for n in names}))
            raise ModelError(f"lora.target_modules: the model has no layer {target} (others of the list: {known})",
                             ["Correct the name, or leave target_modules out: all linear layers."],
                             setting=TARGETS)  # fmt: skip
    missing = [k for k in c.lora.layers or () if not any(f".{k}." in n for n in names)]
    if missing:
        layers = adapted.get_base_model().config.num_hidden_layers
        raise ModelError(f"lora.layers: the model has no layer {missing[0]} to adapt",
                         [f"Its {layers} decoder layers are numbered from 0."], setting="lora.layers")  # fmt: skip


def _with_gradient(module: nn.Module, inputs: tuple[Any, ...], output: Tensor) -> Tensor:
    return output.requires_grad_(True) if output.is_leaf and torch.is_grad_enabled() else output
