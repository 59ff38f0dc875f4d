"""Weights for inference: their names and values are those of the plain model with its adapters merged by peft."""

import copy

import pytest
import torch
from recipe_sdk import causal

from . import test_model


def policy(tmp_path, tiny, **change):
    p = test_model.stepper(tmp_path, tiny, **change).policy
    g = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for name, w in p.named_parameters():
            if "lora_B" in name:  # zeros at first
                w.copy_(torch.randn(w.shape, generator=g) * 0.02)
    return p


LORA = {"lora": {"rank": 4, "alpha": 8}}


@pytest.mark.parametrize("change", [{}, LORA], ids=["full", "lora"])
def test_names_and_values_are_those_of_the_merged_model(tmp_path, tiny, change):
    p = policy(tmp_path, tiny, **change)
    p.causal.register_buffer("stored", torch.ones(2))
    p.causal.register_buffer("passing", torch.ones(2), persistent=False)
    found = dict(causal.named(p.model))
    merged = copy.deepcopy(p.model).merge_and_unload() if change else p.model
    aliases = causal.tied(merged)
    want = {k: v for k, v in merged.state_dict().items() if k not in aliases}
    assert set(found) == set(want)
    for name, value in want.items():
        assert torch.allclose(found[name], value, atol=1e-6), name


def test_adapters_on_bfloat16_weights_are_rounded_at_the_end(tmp_path, tiny):
    """Against float64: half a step of bfloat16."""
    p = policy(tmp_path, tiny, model={"dtype": "bfloat16"}, **LORA)
    found = dict(causal.named(p.model))
    merged = [w for w in causal._weights(p.causal) if w.layer is not None]
    assert len(merged) == 14
    for w in merged:
        a, b = (x["default"].weight.double() for x in (w.layer.lora_A, w.layer.lora_B))
        value, delta = w.value.detach().double(), (w.layer.scaling["default"] * (b @ a)).detach()
        exact = value + delta
        assert found[w.name].dtype == torch.bfloat16
        half = exact.abs() * 2.0**-8 + 1e-9
        gap = (found[w.name].double() - exact).abs()
        assert bool((gap <= half * 1.02).all()), (w.name, float((gap / half).max()))
        assert float(delta.abs().max()) > 1e-3, "the adapter changes nothing"


def test_every_module_takes_a_mode(tmp_path, tiny):
    p = policy(tmp_path, tiny, **LORA)
    assert p.plain_modes
    for mode in (False, True, False):
        p.train(mode)
        assert {m.training for m in p.modules()} == {mode}
    p.parts[3].__class__ = type("Own", (type(p.parts[3]),), {"train": lambda self, mode=True: self})
    assert not type(p)(p.model, p.implementation, p.head_options, None).plain_modes, "a module that does more is asked"
