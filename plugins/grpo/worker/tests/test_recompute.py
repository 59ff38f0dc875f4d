"""Layers that keep their products only: how much that is, and that a step is the same."""

import dataclasses

import pytest
import torch

from worker import auto, compiled, factors, float8, recompute
from worker import batch as batches

from .test_model import groups, stepper

BF16 = {"dtype": "bfloat16", "attention": "varlen"}
WAYS = {
    "full": {"model": BF16},
    "float32": {"model": {**BF16, "dtype": "float32", "compute_dtype": "bfloat16"}},
    "merged": {"model": BF16, "lora": {"rank": 4}},
    "apart": {"model": BF16, "lora": {"rank": 4, "merged": False}},
    "backward": {"model": {**BF16, "float8": "backward"}},
    "all": {"model": {**BF16, "float8": "all"}},
}


@pytest.fixture(autouse=True)
def fresh():
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def kept(out, policy):
    """Bytes of each tensor that compiled layers keep for the backward pass of out, but for weights."""
    weights = {t.untyped_storage().data_ptr() for t in (*policy.parameters(), *policy.buffers())}
    found, seen, todo = {}, set(), [out.grad_fn]
    while todo:
        node = todo.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        todo += [following for following, _ in node.next_functions]
        if type(node).__name__ == "CompiledFunctionBackward":
            for t in node.saved_tensors:
                if t is not None and t.untyped_storage().data_ptr() not in weights:
                    found[t.untyped_storage().data_ptr()] = t.nbytes
    return list(found.values())


def made(tmp_path, tiny, way):
    s = stepper(tmp_path, tiny, **WAYS[way])
    b = batches.build(groups())
    s.sizing.decide(s.config, b)
    s.policy.train()
    row, _ = max(s.rows(b, range(b.n)), key=lambda x: x[0].ids.numel())
    return s, row


def products(s, row):
    """How often the passes of a compiled step calculate each product, and attention."""
    with torch.profiler.profile() as profile:
        s.policy(row).lp.sum().backward()
    s.optimizer.zero_grad()
    names = [e.name for e in profile.events()]
    return {n: names.count(n) for n in set(names) if n.split("::")[-1] in (
        "mm", "addmm", "bmm", "_scaled_mm", "packed_attention", "merged_linear", "round_rows", "round_transposed",
    )}  # fmt: skip


@pytest.mark.parametrize("way", WAYS)
def test_a_step_is_the_same(tmp_path, tiny, way):
    """The kept memory is what the plan assumes. Each product is calculated once: the compiled backward pass has only
    products of gradients, and no second attention. Where only some layers are recomputed, neither kind of layer is a
    recompilation of the other, of which torch allows eight. It is one test, since compiling takes nearly all of its
    time; two ways stand for all where only some are."""
    s, row = made(tmp_path, tiny, way)
    tokens, found, much, counts = row.ids.numel(), [], [], []
    for recomputed, few in ((0, False), (0, True), (1, True))[: 3 if way in ("full", "merged") else 2]:
        torch._dynamo.reset()
        before = compiled.count()
        compiled.layers(s.policy.backbone, recomputed, bool(recomputed), few, "aot_eager_decomp_partition")
        with torch._dynamo.config.patch(error_on_recompile=True):
            hidden = s.policy(row).lp
            much.append(sum(kept(hidden, s.policy)))
            hidden.sum().backward()
            found.append((hidden.detach(), [p.grad.clone() for p in s.parameters]))
            s.optimizer.zero_grad()
            counts.append(products(s, row))
        assert compiled.count() >= before + 1 + recomputed
    assert counts[0] == counts[1] and sum(counts[0].values()) >= 2 * 7 * 3 + 2
    assert counts[0]["recipe::packed_attention"] == 2
    for lp, gradients in found[1:]:
        assert torch.equal(lp, found[0][0])
        assert all(torch.equal(a, b) for a, b in zip(gradients, found[0][1], strict=True))
    assert much[1] < much[0]
    x, shape = s.sizing.given, dataclasses.replace(s.sizing.shape, parameters=0)  # no casts of weights are kept
    whole, hundred = (auto.activations(dataclasses.replace(shape, layers=n), x, 0, False, True, tokens, True)
                      for n in (1, 101))  # fmt: skip
    # of each token also attention's sums and the angles of its place; where adapters are apart, what is between their
    # two factors; in float8, the scale of each channel of the weights
    assert 1 <= much[1] / 2 / ((hundred - whole) / 100) <= {"apart": 1.3, "all": 1.2}.get(way, 1.09)


def test_what_is_not_a_product_is_recalculated():
    aten, ours = torch.ops.aten, torch.ops.recipe
    for op in (aten.mul.Tensor, aten.rsqrt.default, aten.mean.dim, aten.silu.default, aten._to_copy.default):
        assert recompute._but_products(None, op) == recompute.CheckpointPolicy.PREFER_RECOMPUTE
    for op in (aten.mm.default, aten.addmm.default, aten._scaled_mm.default, ours.packed_attention.default,
               ours.merged_linear.default, ours.round_rows.default):  # fmt: skip
        assert recompute._but_products(None, op) == recompute.CheckpointPolicy.MUST_SAVE
    assert all(hasattr(aten, name) for name in recompute._MULTIPLY), "torch has no such operation"
    assert factors.merged_linear and float8.round_rows  # they make their operations known


def test_the_way_that_was_chosen_is_taken(tmp_path, tiny, monkeypatch):
    """From the memory that is free to what layers do; and back."""
    s, _ = made(tmp_path, tiny, "full")
    seen = []
    monkeypatch.setattr(compiled, "layers", lambda *given: seen.append(given[1:]))
    for recomputed, attention, products in ((0, False, True), (1, True, True), (2, True, False)):
        c = dataclasses.replace(s.sizing.choice, compile=True, recomputed=recomputed, attention_kept=attention,
                                products_only=products)  # fmt: skip
        s.policy.run_as(c)
        assert seen.pop() == (recomputed, attention, products)
        with s.policy.uncompiled():
            assert not seen
        assert seen.pop() == (recomputed, attention, products)
    assert auto.choose(s.sizing.shape, s.sizing.given, s.sizing.machine).products_only is False  # a CPU
