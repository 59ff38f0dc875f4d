"""Defaults of how a step runs: a table that the plan in Go answers in the same way, and memory that runs out."""

import dataclasses
import json
from dataclasses import asdict
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from worker import auto, sizing
from worker import batch as batches
from worker.metrics import Clock

from .test_model import groups, stepper

TABLE = Path(__file__).parents[2] / "testdata" / "auto.json"
CASES = json.loads(TABLE.read_text())


@pytest.mark.parametrize("case", CASES, ids=lambda c: c["name"])
def test_the_table(case):
    """Written by `answer` below; a change of it is a change of what users get without asking."""
    assert answer(case) == case["choice"]


def answer(case: dict) -> dict:
    """The choice for a case, in the form of the table."""
    given = case["given"]
    dtype, compute = auto.precision(given.get("dtype"), given.get("compute_dtype"), case["lora"], case["gpu"])
    keys = ("compile", "gradient_checkpointing", "row_tokens", "head_chunk")
    x = auto.Settings(dtype, compute, *(given.get(k) for k in keys))
    s = auto.Shape(**case["shape"])
    fixed = auto.fixed(s, x, case["optimizer"], case["published"], case.get("offload", False))
    narrow = case["gpu"] and auto.WIDTH[compute] == 2
    m = auto.Machine(case["free"], case["gpu"], case["longest"], case["batch_tokens"], fixed, attention=narrow)
    chosen = asdict(auto.choose(s, x, m))
    return {"dtype": dtype, "compute_dtype": compute, **{k: v for k, v in chosen.items() if k != "reason"}}


BIG = auto.Shape(1_543_714_304, 1_543_714_304, 28, 1536, 8960, 151_936, 3584)


def test_memory_alone_demands_recomputation():
    """Less memory: first smaller rows, then what lies between products is recomputed, then more and more layers are,
    then rows get still smaller."""
    seen, said = [], set()
    for free in (*(x / 4 for x in range(600, 82, -1)), 10):
        x = auto.Settings("float32", "bfloat16")
        m = auto.Machine(free * auto.GIB, True, 1024, 65_536, auto.fixed(BIG, x, "adamw", False))
        c = auto.choose(BIG, x, m)
        seen.append((-(-4 * c.recomputed // BIG.layers), c.row_tokens))  # quarters
        assert ("may run out" in c.reason) == (c.needed > auto.USABLE * m.free)
        said.add(c.reason.split(",")[0])
        whole = auto.choose(BIG, x, dataclasses.replace(m, by_layer=False))
        assert whole.recomputed in (0, BIG.layers) and whole.recomputed >= c.recomputed
        assert not c.recomputed or c.products_only == (c.recomputed < BIG.layers)
    assert seen == sorted(seen, key=lambda x: (x[0], -x[1]))
    assert seen[0] == (0, 32768) and seen[-1] == (4, 1024) and {x for x, _ in seen} == {0, 1, 2, 3, 4}
    assert {"activations kept", "activations of 5 of 28 layers recomputed", "activations recomputed"} <= said
    assert "activations recomputed but for products" in said


def test_order_of_what_is_given_up_for_memory():
    """Where the compiler can do it, and nobody has refused it."""
    x = auto.Settings("float32", "bfloat16")
    m = auto.Machine(36 * auto.GIB, True, 1024, 65_536, auto.fixed(BIG, x, "adamw", False))
    c = auto.choose(BIG, x, m)
    assert (c.products_only, c.recomputed, c.row_tokens) == (True, 0, 8192)
    assert "activations recomputed but for products, rows of 8192 tokens" in c.reason
    for other, where in (
        (x, dataclasses.replace(m, compiler=False)),
        (x, dataclasses.replace(m, attention=False)),
        (dataclasses.replace(x, compile=False), m),
        (dataclasses.replace(x, gradient_checkpointing=False), m),
    ):
        c = auto.choose(BIG, other, where)
        assert not c.products_only and (c.recomputed or c.row_tokens < 8192)
    # Weights in the arithmetic's precision are calculated again, too: one layer's are there at a time.
    kept, few = (auto.activations(BIG, x, 0, False, True, 0, products) for products in (False, True))
    assert kept == 2 * BIG.parameters and few == 0
    assert auto.between_products(BIG, x, 0) == pytest.approx(kept / BIG.layers)
    narrow = dataclasses.replace(x, dtype="bfloat16")
    width = 2 * BIG.hidden + BIG.attention + 2 * BIG.ffn
    assert auto.activations(BIG, narrow, 0, False, True, 10, products=True) == 10 * 28 * 2 * width
    assert auto.between_products(BIG, narrow, 10) == 10 * 2 * (8 * BIG.hidden + 3 * BIG.ffn - width)


def test_cheap_recomputing_shortens_no_rows():
    """Where a shorter row is as fast, it is taken: it needs less memory."""
    for free in range(64, 150):
        x = auto.Settings("float32", "bfloat16")
        m = auto.Machine(free * auto.GIB, True, 1024, 65_536, auto.fixed(BIG, x, "adamw", False))
        c = auto.choose(BIG, x, m)
        assert not c.products_only and c.row_tokens >= 16384


def test_as_few_layers_are_recomputed_as_memory_allows():
    """A sequence that is longer than any row: what is left is the number of layers."""
    x = auto.Settings("bfloat16", "bfloat16")
    adapters, last = dataclasses.replace(BIG, trained=70_000_000), 0
    for free in range(160, 2, -1):
        m = auto.Machine(free * auto.GIB, True, 60_000, 120_000, auto.fixed(adapters, x, "adamw", False))
        c = auto.choose(adapters, x, m)
        if c.recomputed and c.needed <= auto.USABLE * m.free:
            fewer = c.recomputed - 1 - (c.recomputed == BIG.layers and c.attention_kept)  # all but one is no way
            way = (fewer, True, True, c.row_tokens, c.head_chunk)
            assert auto.needed(adapters, x, m, True, way) > auto.USABLE * m.free
            if c.head_chunk < auto.CHUNKS[0]:  # worth more than some layers, less than a quarter of them
                most = -(-4 * c.recomputed // BIG.layers) * BIG.layers // 4
                way = (most, True, most < BIG.layers, c.row_tokens, auto.CHUNKS[0])
                assert auto.needed(adapters, x, m, True, way) > auto.USABLE * m.free
        assert c.recomputed >= last and (c.attention_kept or c.recomputed in (0, BIG.layers))
        last = c.recomputed
    assert last == BIG.layers and not c.attention_kept
    assert "but for attention" not in c.reason
    short = auto.choose(adapters, x, dataclasses.replace(m, free=7 * auto.GIB, longest=auto.LONG - 1))
    assert short.recomputed and not short.attention_kept
    other = auto.choose(adapters, x, dataclasses.replace(m, free=60 * auto.GIB, attention=False))
    assert other.recomputed and not other.attention_kept


def test_ranks_keep_gathered_weights_where_they_fit():
    """Also where rows get shorter for it, but not where activations would be recomputed."""
    share = dataclasses.replace(BIG, parameters=BIG.parameters // 2, trained=BIG.trained // 2)
    x = auto.Settings("float32", "bfloat16")
    seen = []
    for free in range(8, 150):
        m = auto.Machine(free * auto.GIB, True, 1024, 65_536, auto.fixed(share, x, "adamw", False))
        c, weights, gradients = auto.choose_sharded(share, x, m, 2)
        alone = auto.choose(share, x, m)
        seen.append((weights, gradients))
        assert alone.recomputed <= c.recomputed <= alone.recomputed + BIG.layers // 8
        assert c.row_tokens <= alone.row_tokens
        assert c.row_tokens >= min(8192, alone.row_tokens) if weights else c == alone
        more = weights * 2 * share.parameters * 2 + gradients * 2 * share.trained * 4
        m = dataclasses.replace(m, fixed=m.fixed + more)
        assert not weights or auto.choose(share, x, m).needed == c.needed <= auto.USABLE * m.free
    assert seen[0] == (False, False) and seen[-1] == (True, True) and (True, False) in seen
    assert (False, True) not in seen


def test_what_is_given_is_obeyed():
    m = auto.Machine(1 * auto.GIB, True, 1024, 65_536, 0)
    x = auto.Settings("float32", "bfloat16", False, False, 5000, 77)
    c = auto.choose(BIG, x, m)
    assert (c.compile, c.recomputed, c.row_tokens, c.head_chunk) == (False, 0, 5000, 77)
    c = auto.choose(BIG, dataclasses.replace(x, gradient_checkpointing=True), dataclasses.replace(m, free=1e15))
    assert c.recomputed == BIG.layers


def test_steps_down_end():
    """Each step down needs less memory, and the number of steps is finite."""
    x, m = auto.Settings("float32", "bfloat16"), auto.Machine(500 * auto.GIB, True, 1024, 65_536, 0)
    c, seen = auto.choose(BIG, x, m), []
    while True:
        less = auto.choose(BIG, x, m, below=c)
        if not auto.smaller(c, less):
            break
        assert less.needed < c.needed and "out of memory with rows of" in less.reason
        assert less.needed <= auto.STEP_DOWN * c.needed or less.recomputed == BIG.layers
        seen.append(less)
        c = less
    assert c.recomputed == BIG.layers and c.row_tokens == 1024 and 5 < len(seen) < 12


@pytest.mark.parametrize("at", ["forward", "backward", "optimizer"])
def test_out_of_memory_leads_to_smaller_settings(tmp_path, tiny, monkeypatch, at):
    """The numbers equal those of a run that never ran out of memory."""
    free = {"model": {"gradient_checkpointing": None, "row_tokens": None, "head_chunk": None}}
    calm, troubled = stepper(tmp_path, tiny, **free), stepper(tmp_path, tiny, **free)
    b = batches.build(groups(12))
    want = calm.train(b, 0, Clock(torch.device("cpu")))
    left = [2]

    def full(original):
        def action(*args, **kwargs):
            if left[0]:
                left[0] -= 1
                raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")
            return original(*args, **kwargs)

        return action

    if at == "forward":
        monkeypatch.setattr(troubled.policy, "forward", full(troubled.policy.forward))
    elif at == "backward":
        monkeypatch.setattr(torch.Tensor, "backward", full(torch.Tensor.backward))
    else:
        troubled.optimizer.step = full(troubled.optimizer.step)
    got = troubled.train(b, 0, Clock(torch.device("cpu")))
    assert left == [0] and troubled.sizing.steps_down == 2
    assert sum("out of memory with rows of" in note for note in troubled.notes) == 2
    assert got["loss/total"] == pytest.approx(want["loss/total"], abs=1e-10)
    assert got["grad_norm"] == pytest.approx(want["grad_norm"], abs=1e-10)
    for p, q in zip(calm.policy.parameters(), troubled.policy.parameters(), strict=True):
        assert torch.allclose(p, q, atol=1e-9)


@pytest.mark.parametrize("times", [1, 2])
@pytest.mark.parametrize("left_open", [True, False])
def test_settings_that_have_fitted_are_tried_again(tmp_path, tiny, monkeypatch, times, left_open):
    """Memory that came apart into small pieces is no reason to train in a smaller way for good."""
    fixed = {"gradient_checkpointing": False, "row_tokens": 64, "head_chunk": 8, "compile": False}
    model = {"gradient_checkpointing": None, "row_tokens": None, "head_chunk": None} if left_open else fixed
    s = stepper(tmp_path, tiny, model=model)
    b, clock = batches.build(groups(12)), Clock(torch.device("cpu"))
    s.train(b, 0, clock)
    s.notes.clear()
    before, forward, left = s.sizing.choice, s.policy.forward, [times]

    def full(*args, **kwargs):
        if left[0]:
            left[0] -= 1
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")
        return forward(*args, **kwargs)

    monkeypatch.setattr(s.policy, "forward", full)
    if times == 2 and not left_open:
        with pytest.raises(torch.OutOfMemoryError):
            s.within_memory(lambda: s.policy(None))
        return
    s.train(b, 1, clock)
    assert "once more" in s.notes[0]
    assert (s.sizing.choice is before) == (times == 1)
    assert (s.sizing.steps_down, len(s.notes)) == ((0, 1) if times == 1 else (1, 2))


def test_what_memory_was_used_for_is_said(monkeypatch):
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda d: (2 * auto.GIB, 80 * auto.GIB))
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda d: 45 * auto.GIB)
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda d: 38.5 * auto.GIB)
    assert sizing.in_use(torch.device("cpu")) == ""
    assert sizing.in_use(torch.device("cuda")) == " (38.5 GiB were in use, 6.5 more kept by torch, 2.0 free)"


def test_a_server_on_the_same_gpu_is_left_some_memory(monkeypatch):
    taken, gpu = [], torch.device("cuda")
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda d: (80 * auto.GIB, 140 * auto.GIB))
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda d: 5 * auto.GIB)
    monkeypatch.setattr(torch.cuda, "set_per_process_memory_fraction", lambda x, d: taken.append(x * 140))
    sizing.spare_memory(torch.device("cpu"))
    assert taken == []
    sizing.spare_memory(gpu)
    assert taken == [pytest.approx(5 + 0.97 * 80)]
    assert auto.USABLE < 1 - sizing.SPARED  # what a step is planned to need is below the limit


@pytest.mark.parametrize(
    ("kept", "peak", "given"),
    [(44, 39, True), (44, 43, False), (30, 20, False), (44, 0, True)],
    ids=["pieces", "all of it was in use", "far from the limit", "before the first batch"],
)
def test_cached_memory_is_released_in_time(monkeypatch, kept, peak, given):
    done = []
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda _: kept * auto.GIB)
    monkeypatch.setattr(torch.cuda, "max_memory_allocated", lambda _: peak * auto.GIB)
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: done.append(True))
    s = object.__new__(sizing.Sizing)
    s.ranks, s.choice, s.limit, s.peak = SimpleNamespace(device=torch.device("cuda")), None, 45.4 * auto.GIB, 0.0
    s.fits()
    s.give_back()
    assert bool(done) == given
    s.ranks = SimpleNamespace(device=torch.device("cpu"))
    s.give_back()
    assert bool(done) == given


def test_out_of_memory_at_the_smallest_is_an_error(tmp_path, tiny, monkeypatch):
    fixed = {"gradient_checkpointing": True, "row_tokens": 64, "head_chunk": 8, "compile": False}
    s = stepper(tmp_path, tiny, model=fixed)

    def full(*_, **__):
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(s.policy, "forward", full)
    with pytest.raises(torch.OutOfMemoryError):
        s.within_memory(lambda: s.policy(None))
    assert s.sizing.steps_down == 0


if __name__ == "__main__":  # python -m worker.tests.test_auto rewrites the answers
    TABLE.write_text("[\n" + ",\n".join(json.dumps({**c, "choice": answer(c)}) for c in CASES) + "\n]\n")
