"""Attention over packed rows: torch's own, sequence by sequence, is what each kernel's path must calculate."""

import dataclasses

import pytest
import torch
import torch.nn.functional as F

from worker import attention, compiled, recompute
from worker import batch as batches

from .test_model import after_steps, groups, stepper

LENGTHS = (7, 13, 1, 13)


def made(dtype=torch.float64):
    """q, k, v of 4 and 2 heads, and the cumulative lengths."""
    g = torch.Generator().manual_seed(0)
    n = sum(LENGTHS)
    q, k, v = (torch.randn(n, heads, 8, generator=g, dtype=dtype).requires_grad_() for heads in (4, 2, 2))
    return (q, k, v), torch.tensor([0, *LENGTHS], dtype=torch.int32).cumsum(0, dtype=torch.int32)


@pytest.mark.parametrize("window", [0, 5])
def test_packed_attention_is_that_of_each_sequence(window):
    (q, k, v), bounds = made()
    out, _ = attention.packed_attention(q, k, v, bounds, 13, attention.VARLEN, 0.3, window)
    want, start = [], 0
    for n in LENGTHS:
        part, start = slice(start, start + n), start + n
        at = torch.arange(n)
        seen = (at[None] <= at[:, None]) & (at[None] > at[:, None] - (window or n))
        single = (x[part].transpose(0, 1)[None] for x in (q, k, v))
        want.append(F.scaled_dot_product_attention(*single, attn_mask=seen, scale=0.3, enable_gqa=True)[0])
    want = torch.cat([x.transpose(0, 1) for x in want])
    assert torch.allclose(out, want, atol=1e-12)
    up = torch.randn_like(out)
    for a, b in zip(torch.autograd.grad(out, (q, k, v), up), torch.autograd.grad(want, (q, k, v), up), strict=True):
        assert torch.allclose(a, b, atol=1e-12)


def test_it_is_an_operator_that_compiles():
    """Shapes, strides and gradients that compiled code relies on are those that come."""
    (q, k, v), bounds = made()
    torch.library.opcheck(attention.packed_attention, (q, k, v, bounds, 13, attention.VARLEN, 0.3, 0))


def test_rows_train_as_with_a_mask(tmp_path, tiny):
    want, weights = after_steps(stepper(tmp_path, tiny))
    got, other = after_steps(stepper(tmp_path, tiny, model={"attention": "varlen"}))
    for a, b in zip(want, got, strict=True):
        assert a == pytest.approx(b, abs=1e-10)
    assert all(torch.allclose(weights[k], other[k], atol=1e-6) for k in weights)


def test_folding_is_undone():
    x = torch.randn(12, 3, 5)
    folded = attention._folded(x, 4)
    assert folded.shape == (3, 3, 4, 5) and torch.equal(folded[1, 2], x[4:8, 2])
    assert torch.equal(attention._flat(folded), x)


def row(*lengths):
    return batches.sample(61, lengths)


def test_a_shapes_second_use_takes_its_own_kernel():
    k = attention.Kernels()
    assert [k.choose(row(128, 128)) for _ in range(2)] == [attention.VARLEN] * 2  # it does not work here
    k.even = True
    assert k.choose(row(128, 128)) == attention.VARLEN
    assert k.choose(row(128, 128)) == attention.EVEN
    assert k.choose(row(128, 128, 128)) == attention.VARLEN  # another shape
    assert k.choose(row(128, 127)) == attention.VARLEN
    assert k.choose(row(64, 64)) == k.choose(row(64, 64)) == attention.VARLEN  # too short


def test_a_cpu_has_no_kernel_for_one_length():
    k = attention.Kernels()
    assert "Hopper" in k.check(torch.device("cpu"), torch.bfloat16, 4, 2, 64) and not k.even


def test_both_kernels_need_one_compilation(tmp_path, tiny):
    """The number of the kernel must not become a constant of compiled code."""
    torch._dynamo.reset()
    seen = []

    def backend(module, inputs):
        seen.append(module)
        return module.forward

    s = stepper(tmp_path, tiny, model={"attention": "varlen"})
    compiled.layers(s.policy.backbone, backend=backend)
    s.policy.kernels.even = True
    s.policy.train()
    for lengths in ((30, 50), (128, 128), (128, 128), (20, 10, 40)):
        s.policy(row(*lengths)).lp.sum().backward()
    assert s.policy.kernels.seen[2, 128] == 2 and len(seen) == 1
    torch._dynamo.reset()


@pytest.mark.parametrize("compiles", [False, True])
@pytest.mark.parametrize("change", [{"lora": {"rank": 4}}, {}], ids=["lora", "full"])
def test_attention_is_kept_when_a_layer_is_recomputed(tmp_path, tiny, monkeypatch, change, compiles):
    """It is calculated once a layer and pass, and the step stays the same; then as before, when it is not kept. Compiled,
    a recomputed layer has 6 products of 7: the last one's is of use to the next layer only."""
    calls, products, calculated, linear = [], [], attention._plain, F.linear
    monkeypatch.setattr(attention, "_plain", lambda *args: calls.append(args) or calculated(*args))
    monkeypatch.setattr(F, "linear", lambda *args: products.append(args) or linear(*args))  # that of merged adapters
    s = stepper(tmp_path, tiny, model={"attention": "varlen"}, **change)
    b = batches.build(groups())
    s.sizing.decide(s.config, b)
    s.policy.train()
    (row, _), *_ = s.rows(b, range(b.n))
    torch._dynamo.reset()
    found = []
    ways = ((0, False, 2), (2, True, 2), (1, True, 2), (2, False, 4), (1, False, 3), (2, True, 2))
    if compiles:  # each kind of layer once: one that is not recomputed, and one that is, which keeps attention or not
        ways = ((1, True, 2), (2, False, 4), (0, False, 2))
    for recomputed, kept, times in ways:
        s.policy.run_as(dataclasses.replace(s.sizing.choice, recomputed=recomputed, attention_kept=kept))
        if compiles:
            recompute.by_transformers(s.policy.causal, s.policy.backbone, 0, False)
            compiled.layers(s.policy.backbone, recomputed, kept, backend="aot_eager")
        s.policy(row).lp.sum().backward()  # compiles
        s.optimizer.zero_grad()
        calls.clear()
        products.clear()
        s.policy(row).lp.sum().backward()
        assert len(calls) == times, (recomputed, kept)
        if change and compiles:
            assert len(products) == 2 * 7 + 6 * recomputed
        found.append([p.grad.clone() for p in s.parameters])
        with torch.no_grad():
            s.policy(row)
        assert len(calls) == times + 2, "a pass without gradient calculates"
    for other in found[1:]:
        assert all(torch.equal(x, y) for x, y in zip(found[0], other, strict=True))
