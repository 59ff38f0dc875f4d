"""Compilation: how often it happens, and that the fast forward pass of adapters is peft's."""

import dataclasses
from types import SimpleNamespace

import pytest
import torch
from peft import LoraConfig, get_peft_model

from worker import batch as batches
from worker import compiled, sizing
from worker.lora import Adapted

from .test_model import groups, stepper


@pytest.fixture
def graphs():
    """Counts what dynamo hands to its backend."""
    torch._dynamo.reset()
    seen = []

    def backend(module, inputs):
        seen.append(module)
        return module.forward

    yield seen, backend
    torch._dynamo.reset()


@pytest.mark.parametrize(
    ("change", "recomputed"), [({}, 0), ({"lora": {"rank": 4}}, 0), ({}, 2), ({}, 1), ({"lora": {"rank": 4}}, 1)]
)
def test_one_compilation_serves_rows_of_any_length(tmp_path, tiny, graphs, change, recomputed):
    seen, backend = graphs
    s = stepper(tmp_path, tiny, **change)
    b = batches.build(groups(12))
    s.sizing.decide(s.config, b)
    compiled.layers(s.policy.backbone, recomputed, backend=backend)
    kinds = 1 + (recomputed == 1)  # of layers
    s.policy.train()
    for members in (range(3), range(3, 8), range(8, 24)):
        for row, _ in s.rows(b, members):
            if len(row.sequences) > 1:  # a row of one sequence needs no mask here; GPU kernels never use one
                s.policy(row).lp.sum().backward()
    assert len(seen) == kinds, "layers or lengths were compiled again"
    s.policy.eval()
    with torch.no_grad():
        for members in (range(4), range(4, 16)):
            for row, _ in s.rows(b, members):
                if len(row.sequences) > 1:
                    s.policy(row)
    assert len(seen) == kinds + 1  # once more without gradients, for all layers
    compiled.plain(s.policy.backbone)
    compiled.layers(s.policy.backbone, recomputed, backend=backend)
    s.policy.train()
    s.policy(row).lp.sum().backward()
    assert len(seen) == kinds + 1, "compiled again after a pass that was not"


def test_long_sequences_use_the_early_compilation(tmp_path, tiny, monkeypatch):
    """A sequence is a row at least, so where memory is short long ones are recomputed, which is another graph."""
    s = stepper(tmp_path, tiny, model={"row_tokens": None, "gradient_checkpointing": None})
    monkeypatch.setattr(sizing, "free_memory", lambda _: 5e7)
    long = SimpleNamespace(tokens=[range(8000)], total_tokens=8000)

    def recomputed(b, max_length=8192):
        c = dataclasses.replace(s.config, data=dataclasses.replace(s.config.data, max_length=max_length))
        s.sizing.decide(c, b)
        return s.sizing.choice.recomputed

    assert recomputed(None, max_length=1024) == 0, "there is room for everything; this test says nothing"
    assert recomputed(None) == recomputed(long) > 0
    assert recomputed(None, max_length=1 << 20) == 0  # a bound that no sequence here can reach


@pytest.mark.parametrize("recomputed", [0, 1, 2])
def test_layers_of_a_kind_share_a_compilation(tmp_path, tiny, graphs, recomputed):
    seen, backend = graphs
    s = stepper(tmp_path, tiny, lora={"rank": 4})
    compiled.layers(s.policy.backbone, recomputed, backend=backend)
    s.policy.train()
    kinds = 1 + (recomputed == 1)
    with compiled.one_of_each(s.policy.backbone, recomputed):
        assert len(s.policy.backbone.layers) == kinds
        s.policy(batches.sample(61)).lp.sum().backward()
    assert len(seen) == kinds
    s.policy(batches.sample(61, (20, 30, 40))).lp.sum().backward()
    assert len(seen) == kinds
    s.policy.compiled = True
    with s.policy.uncompiled(), torch.no_grad():
        s.policy(batches.sample(61, (9, 8)))
    assert len(seen) == kinds


def test_compiled_layers_equal_plain_ones(tmp_path, tiny, graphs):
    _, backend = graphs
    s = stepper(tmp_path, tiny, lora={"rank": 4})
    row = batches.sample(61, (30, 50))
    want = s.policy(row).lp
    compiled.layers(s.policy.backbone, backend=backend)
    assert torch.equal(s.policy(row).lp, want)
    compiled.plain(s.policy.backbone)
    assert torch.equal(s.policy(row).lp, want)


@pytest.mark.parametrize(
    ("dtype", "tolerance"), [(torch.float64, 1e-12), (torch.float32, 1e-6), (torch.bfloat16, 0.02)]
)
def test_adapters_calculate_what_peft_calculates(dtype, tolerance):
    """Values and gradients; in bfloat16 within its resolution, because here the input is not widened first."""

    def made():
        torch.manual_seed(0)
        base = torch.nn.Sequential(torch.nn.Linear(32, 48, dtype=dtype), torch.nn.Linear(48, 16, dtype=dtype))
        model = get_peft_model(base, LoraConfig(r=8, lora_alpha=16, target_modules=["0", "1"]))
        torch.manual_seed(1)
        for name, p in model.named_parameters():
            if "lora_" in name:
                torch.nn.init.normal_(p, std=0.2)
        return model

    peft, ours = made(), made()
    for layer in ours.modules():
        if type(layer) is Adapted.__mro__[1]:
            layer.__class__ = Adapted
    torch.manual_seed(2)
    x = torch.randn(64, 32, dtype=dtype)
    a, b = peft(x), ours(x)
    assert b.dtype == a.dtype
    assert torch.allclose(a, b, atol=tolerance * float(a.abs().max()))
    a.square().mean().backward()
    b.square().mean().backward()
    for (name, p), q in zip(peft.named_parameters(), ours.parameters(), strict=True):
        if p.grad is not None:
            assert q.grad.dtype == p.grad.dtype
            scale = float(p.grad.abs().max())
            assert torch.allclose(p.grad, q.grad, atol=2 * tolerance * scale), name


@pytest.mark.parametrize("row_tokens", [1, 2048, 8192, 9000, 32768, 1 << 20])
def test_the_row_to_compile_on_is_as_long_as_a_batchs(row_tokens):
    lengths = compiled.lengths(row_tokens)
    assert sum(lengths) == min(max(row_tokens, 2048), 32768) and min(lengths) >= 64 and len(set(lengths)) > 1
    row = batches.sample(64, lengths)
    assert row.ids.shape == (1, sum(lengths)) and len(row.label) == sum(lengths) - len(lengths)
