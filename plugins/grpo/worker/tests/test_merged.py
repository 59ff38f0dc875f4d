"""Adapters that train while they are merged, or beside the weights: the same step, and for inference names and values
of the plain model with its adapters merged by peft."""

import copy
import dataclasses
import types

import pytest
import torch
from recipe_sdk import causal, fields, publish
from recipe_sdk.ipc import Shared

from worker import batch as batches
from worker import sizing
from worker.merged import merge
from worker.weights import merged

from . import test_model
from .conftest import attached


def policy(tmp_path, tiny, **change):
    p = test_model.stepper(tmp_path, tiny, **change).policy
    g = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for name, w in p.named_parameters():
            if "lora_B" in name:  # zeros at first
                w.copy_(torch.randn(w.shape, generator=g) * 0.02)
    if p.merged:
        p.merged.refresh()
    return p


LORA = {"lora": {"rank": 4, "alpha": 8}}
APART = {"lora": {**LORA["lora"], "merged": False}}


@pytest.mark.parametrize("change", [{}, LORA, APART], ids=["full", "lora", "apart"])
def test_names_and_values_equal_the_merged_model(tmp_path, tiny, change):
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


@pytest.mark.parametrize("change", [LORA, APART], ids=["merged", "apart"])
def test_adapters_on_bfloat16_are_rounded_at_the_end(tmp_path, tiny, change):
    """Against float64: half a step of bfloat16. What trains merged rounds the factors, too, as autocast would."""
    p = policy(tmp_path, tiny, model={"dtype": "bfloat16"}, **change)
    originals = p.merged.originals if p.merged else [None] * 14
    found = dict(causal.named(p.model))
    merged = [w for w in causal._weights(p.causal) if w.layer is not None]
    assert len(merged) == 14
    for w, original in zip(merged, originals, strict=True):
        a, b = (x["default"].weight.detach() for x in (w.layer.lora_A, w.layer.lora_B))
        assert a.dtype == b.dtype == torch.float32
        b = b * w.layer.scaling["default"]
        if original is not None:
            a, b = a.bfloat16(), b.bfloat16()
        value, delta = (w.value if original is None else original).detach().double(), b.double() @ a.double()
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


def of_adapters(weights):
    return {k: v for k, v in weights.items() if ".lora_" in k}


@pytest.mark.parametrize("name", ["lora", "kl"])
def test_a_step_is_that_of_adapters_beside_the_weights(tmp_path, tiny, name):
    """Losses, gradient norms and adapters of three steps in float64, with and without a reference with adapters off."""
    change = fields.merge(LORA, {"kl": {"coefficient": 0.1, "reward_coefficient": 0.05}} if name == "kl" else {})
    apart = test_model.stepper(tmp_path, tiny, **fields.merge(change, APART))
    together = test_model.stepper(tmp_path, tiny, **change)
    assert apart.policy.merged is None and together.policy.merged is not None
    (losses, want), (others, got) = (test_model.after_steps(s, 3) for s in (apart, together))
    for a, b in zip(losses, others, strict=True):
        assert a == pytest.approx(b, abs=1e-9)
    want, got = of_adapters(want), of_adapters(got)
    assert want.keys() == got.keys() and len(want) == 28
    assert all(torch.allclose(want[k], got[k], atol=1e-7) for k in want)


def test_the_weights_before_training_come_back(tmp_path, tiny):
    s = test_model.stepper(tmp_path, tiny, **LORA)
    layers, before = s.policy.merged.layers, [x.clone() for x in s.policy.merged.originals]
    test_model.after_steps(s)
    now = [x.base_layer.weight.detach().clone() for x in layers]
    assert not any(torch.equal(a, b) for a, b in zip(before, now, strict=True))
    with s.policy.without_adapters():
        assert all(torch.equal(x.base_layer.weight, w) for x, w in zip(layers, before, strict=True))
    assert all(torch.equal(x.base_layer.weight, w) for x, w in zip(layers, now, strict=True))


def test_what_inference_is_given_is_what_trains(tmp_path, tiny):
    """In bfloat16, to the last bit: the same log-probabilities by a plain model with the published weights, which are
    not copied for it."""
    s = test_model.stepper(tmp_path, tiny, model={"dtype": "bfloat16"}, optimizer={"learning_rate": 0.05}, **LORA)
    test_model.after_steps(s)
    plain = test_model.stepper(tmp_path, tiny, model={"dtype": "bfloat16"}).policy
    weights = dict(merged(s.policy))
    places = {p.data_ptr() for p in s.policy.causal.parameters()}
    assert {w.data_ptr() for w in weights.values()} <= places
    with torch.no_grad():
        base = plain(batches.sample(61)).lp
        for name, p in plain.causal.named_parameters():
            p.copy_(weights[name])
        lp = plain(batches.sample(61)).lp
        assert torch.equal(s.policy(batches.sample(61)).lp, lp) and not torch.allclose(base, lp, atol=0.05)


def test_adapters_are_merged_where_they_can_be(tmp_path, tiny, monkeypatch):
    def notes(**lora):
        s = test_model.stepper(tmp_path, tiny, lora={**LORA["lora"], **lora})
        return s.policy.merged is not None, " ".join(s.notes)

    assert notes() == (True, "") == notes(merged=True)
    assert notes(merged=False) == (False, "")
    together, why = notes(dropout=0.1)
    assert not together and "dropout" in why
    with pytest.raises(fields.ConfigError, match="adapters with dropout cannot be merged"):
        notes(dropout=0.1, merged=True)
    monkeypatch.setattr("worker.step.free_memory", lambda device: 100_000.0)
    together, why = notes()
    assert not together and "0.0 GiB that are free" in why
    assert notes(merged=True) == (True, "")


@pytest.mark.parametrize("others", [[], [(1_000_000, 1e5)]], ids=["room", "none on another rank"])
def test_all_ranks_merge_or_none(tmp_path, tiny, others):
    """Each knows its own shard and its own free memory only."""
    s = test_model.stepper(tmp_path, tiny, **APART)
    ranks = types.SimpleNamespace(gather=lambda x: [x, *others], rank=0, world=1)
    found, why = merge(s.policy.parts, None, ranks, 1e9, mixed=False, sharded=False)
    assert (found is None) == bool(others) == ("0.0 of 0.0 GiB" in why)


def test_a_published_copy_is_not_counted_twice(tmp_path, tiny):
    """What inference reads is there already where adapters are merged."""

    def coming(change):
        s = test_model.stepper(tmp_path, tiny, **change)
        c = dataclasses.replace(s.config, wait_for_sync=True)
        fixed = s.sizing.look(c, sizing.settings(c, s.ranks.device), None).fixed
        return fixed, 8 * sum(p.numel() for p in s.policy.causal.parameters())

    together, _ = coming(LORA)
    apart, weights = coming(APART)
    assert apart - together == pytest.approx(weights, rel=0.2)


def test_handles_on_a_cpu_hold_the_sum(tmp_path, tiny):
    s = test_model.stepper(tmp_path, tiny, **LORA)
    shared = Shared()
    for k in range(2):
        test_model.after_steps(s, 1)
        shared.refresh(lambda: merged(s.policy), s.ranks.device, k, None, False)
        now = dict(merged(s.policy))
        assert all(torch.equal(shared.tensors[n], now[n]) for n in now)


def test_adapters_served_apart_are_trained_apart(tmp_path, tiny):
    """From the first publication of an adapter on, with the numbers of a run that never merged."""
    apart, together = (test_model.stepper(tmp_path, tiny, **change) for change in (APART, LORA))
    for s in (apart, together):
        test_model.after_steps(s, 1)
        publish.publish(attached(s), {"version": 1, "transport": "lora", "dir": str(tmp_path / "adapter")})
    assert together.policy.merged is None
    (losses, want), (others, got) = (test_model.after_steps(s, 2) for s in (apart, together))
    assert [x for pair in losses for x in pair] == pytest.approx([x for pair in others for x in pair], abs=1e-9)
    assert want.keys() == got.keys() and all(torch.allclose(want[k], got[k], atol=1e-7) for k in want)
    asked = test_model.stepper(tmp_path, tiny, lora={**LORA["lora"], "merged": True})
    publish.publish(attached(asked), {"version": 1, "transport": "lora", "dir": str(tmp_path / "adapter")})
    assert asked.policy.merged is not None
