"""Moments that come during the last backward pass and go during the next forward pass: when, and that no number changes.
What streams may make of it: test_offload.py."""

import dataclasses
from types import SimpleNamespace

import pytest
import torch

from worker import auto, offload, prefetch, turns
from worker import batch as batches
from worker.metrics import Clock

from .conftest import attached
from .test_model import CPU, SETTINGS, after_steps, groups, stepper
from .test_offload import same

ROOM = 1e12


@pytest.fixture
def switched(monkeypatch):
    """How torch was told to take memory."""
    monkeypatch.setitem(offload.AdamW.__init__.__kwdefaults__, "piece", 4096)
    for name in prefetch.SETTINGS:
        monkeypatch.delenv(name, raising=False)
    told = []
    monkeypatch.setattr(prefetch, "recombines", lambda: True)
    monkeypatch.setattr(prefetch, "expandable", told.append)
    return told


def busy(tmp_path, tiny, room, **change):
    """A stepper whose moments come before its steps and go after them."""
    s = stepper(tmp_path, tiny, **{**change, "optimizer": {"offload": True, "schedule": "linear"}})
    assert not s.prefetch.active, "copies keep a CPU"
    s.optimizer.pinned = True
    s.prefetch = prefetch.Prefetch(s.policy, s.optimizer, room)
    assert s.prefetch.active
    return s


@pytest.mark.parametrize("name", ["grpo", "lora", "mini-batches", "mixed"])
@pytest.mark.parametrize("room", ["plenty", "little", "none"])
def test_a_step_is_the_same(tmp_path, tiny, switched, name, room):
    calls = [0]

    def left(head):
        calls[0] += 1
        return {"plenty": ROOM, "little": ROOM if calls[0] % 3 else -1.0, "none": -1.0}[room]

    plain = stepper(tmp_path, tiny, **{**SETTINGS[name], "optimizer": {"schedule": "linear"}})
    s = busy(tmp_path, tiny, left, **SETTINGS[name])
    step, found = s.optimizer.step, []
    s.optimizer.step = lambda: (found.append(len(s.optimizer.prefetched)), step())
    (losses, want), (others, got) = after_steps(plain, 3), after_steps(s, 3)
    assert losses == others and all(torch.equal(want[n], got[n]) for n in want)
    same(plain.optimizer, s.optimizer)
    pieces = len(s.optimizer.pieces)
    expected = {"plenty": {pieces}, "none": {0}}.get(room) or {n for n in found if 0 < n <= pieces}
    assert pieces > 3 and set(found) == expected
    assert switched == [True, False] * 3, "within a batch only"


def test_pieces_come_last_and_go_when_room_is_needed(tmp_path, tiny, switched):
    left, seen = [ROOM], []
    s = busy(tmp_path, tiny, lambda head: left[0], model={"row_tokens": 32})
    row = s.policy.forward

    def forward(*some, **named):
        seen.append(("row", len(s.optimizer.prefetched), len(s.optimizer.going)))
        return row(*some, **named)

    def layer(*_):
        seen.append(("layer", len(s.optimizer.prefetched), len(s.optimizer.going)))

    s.policy.forward = forward
    s.policy.backbone.layers[0].register_forward_pre_hook(layer)
    b, pieces = batches.build(groups()), len(s.optimizer.pieces)
    s.train(b, 0, Clock(CPU))
    rows = [x for x in seen if x[0] == "row"]
    assert len(rows) > 2 and all(there == 0 for _, there, _ in rows), "no row comes after the last backward pass"
    assert len(s.optimizer.going) == pieces and not s.optimizer.prefetched
    seen.clear()
    left[0] = -1.0
    with torch.no_grad():
        s.policy(batches.whole_row(torch.arange(2, 8)))
    assert seen == [("row", 0, pieces), ("layer", 0, pieces)], "a few tokens between two batches need no room"
    seen.clear()
    s.train(b, 1, Clock(CPU))
    assert seen[0] == ("row", 0, pieces) and seen[1] == ("layer", 0, 0)


def test_the_head_counts_before_its_backward_pass_only(tmp_path, tiny, switched):
    asked = []
    s = busy(tmp_path, tiny, lambda head: (asked.append(head), -1.0)[1])
    s.train(batches.build(groups()), 0, Clock(CPU))
    assert asked == [True] + [False] * len(s.policy.backbone.layers)


def test_room_is_what_a_row_leaves(tmp_path, tiny, switched, monkeypatch):
    s = busy(tmp_path, tiny, lambda head: ROOM)
    s.train(batches.build(groups()), 0, Clock(CPU))
    assert s.sizing.room() == 0, "a CPU has no memory of its own"
    s.sizing.limit, s.sizing.ranks = 1e9, SimpleNamespace(device=torch.device("cuda"))
    used = [3e8]
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda device: used[0])
    before, x = s.sizing.room(head=False), s.sizing.choice
    layer = auto.activations(dataclasses.replace(s.sizing.shape, layers=1), s.sizing.given, 0, False, False, 64)
    assert 0 < before < 1e9 - used[0] - layer
    head = auto.head(s.sizing.shape, s.sizing.given, x.compile, x.head_chunk)
    assert head > 0 and s.sizing.room() == pytest.approx(before - head)
    used[0] = 9.9e8
    assert s.sizing.room(head=False) == pytest.approx(before - 6.9e8) and before - 6.9e8 < 0


def test_only_small_cached_pieces_are_released(tmp_path, tiny, switched):
    s, plain, given = busy(tmp_path, tiny, lambda head: ROOM), stepper(tmp_path, tiny), []
    for k in (s, plain):
        k.sizing.give_back = lambda k=k: given.append(k)
        k.train(batches.build(groups()), 0, Clock(CPU))
    assert given == [plain]


def test_a_skipped_batch_leaves_the_device_empty(tmp_path, tiny, switched, monkeypatch):
    s = busy(tmp_path, tiny, lambda head: ROOM)
    monkeypatch.setattr("worker.checks.absurd", lambda *_: True)
    there = []
    zero_grad = s.optimizer.zero_grad
    s.optimizer.zero_grad = lambda **named: (there.append(len(s.optimizer.prefetched)), zero_grad(**named))
    assert s.train(batches.build(groups()), 0, Clock(CPU))["absurd"]
    assert there[-1] == len(s.optimizer.pieces) and not s.optimizer.prefetched and not s.optimizer.state


def test_out_of_memory_is_retried_without_prefetch(tmp_path, tiny, switched, monkeypatch):
    free = {"model": {"gradient_checkpointing": None, "row_tokens": None, "head_chunk": None}}
    s, plain = busy(tmp_path, tiny, lambda head: ROOM, **free), stepper(tmp_path, tiny, **free)
    b, wanted = batches.build(groups()), []
    for k in range(2):
        wanted.append(plain.train(b, k, Clock(CPU))["loss/total"])
    s.train(b, 0, Clock(CPU))
    assert s.optimizer.going
    forward, seen = s.policy.forward, []

    def full(*some, **named):
        seen.append(len(s.optimizer.prefetched) + len(s.optimizer.going))
        if len(seen) == 1:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")
        return forward(*some, **named)

    monkeypatch.setattr(s.policy, "forward", full)
    assert s.train(b, 1, Clock(CPU))["loss/total"] == pytest.approx(wanted[1], abs=1e-9)
    assert seen[0] and not seen[1]


def test_checkpoints_and_turns_wait_for_what_goes(tmp_path, tiny, switched, monkeypatch):
    s = busy(tmp_path, tiny, lambda head: ROOM)
    done = []
    monkeypatch.setattr(offload.Immediate, "synchronize", lambda _: done.append(len(s.optimizer.going)))
    after_steps(s, 1)
    done.clear()
    pieces = len(s.optimizer.going)
    bridge = attached(s)
    bridge.step = 1
    bridge.save("asked")
    assert len(done) == pieces > 3 and not s.optimizer.going
    after_steps(s, 1)
    assert s.optimizer.going
    turns.vacate(CPU, s.optimizer)
    assert not s.optimizer.going
    turns.vacate(CPU, torch.optim.SGD(s.policy.parameters(), 0.1))


@pytest.mark.parametrize("change", ["not pinned", "sharded", "another optimizer", "pieces that stay small"])
def test_where_it_is_of_no_use_nothing_is_done(tmp_path, tiny, switched, monkeypatch, change):
    s = stepper(tmp_path, tiny, optimizer={"offload": change != "another optimizer"})
    s.optimizer.pinned = change != "not pinned"
    if change == "sharded":
        s.policy.sharded = [s.policy]
    if change == "pieces that stay small":
        monkeypatch.setattr(prefetch, "recombines", lambda: False)
    made = prefetch.Prefetch(s.policy, s.optimizer, lambda head: pytest.fail("nobody asks"))
    assert not made.active and getattr(s.optimizer, "room", None) is None
    s.policy.sharded = []
    s.prefetch = made
    s.train(batches.build(groups()), 0, Clock(CPU))
    assert not switched


@pytest.mark.parametrize("name", prefetch.SETTINGS)
@pytest.mark.parametrize("given, wanted", [
    ("expandable_segments:True", True), ("max_split_size_mb:64, Expandable_Segments: true", True),
    ("expandable_segments:False", False), ("max_split_size_mb:64", False),
])  # fmt: skip
def test_how_a_user_has_torch_take_memory_stays(tmp_path, tiny, monkeypatch, name, given, wanted):
    for other in prefetch.SETTINGS:
        monkeypatch.delenv(other, raising=False)
    monkeypatch.setenv(name, given)
    monkeypatch.setattr(prefetch, "expandable", lambda on: pytest.fail("it was changed"))
    assert prefetch.recombines() == wanted
    s = stepper(tmp_path, tiny, optimizer={"offload": True})
    s.optimizer.pinned = True
    made = prefetch.Prefetch(s.policy, s.optimizer, lambda head: ROOM)
    assert made.active == wanted
    with made.batch():
        pass


def test_a_torch_that_cannot_be_told_is_noticed(monkeypatch):
    for name in prefetch.SETTINGS:
        monkeypatch.delenv(name, raising=False)
    told = []

    def refused(on):
        told.append(on)
        raise AttributeError("_accelerator_setAllocatorSettings")

    monkeypatch.setattr(prefetch, "expandable", refused)
    assert prefetch.recombines() is False
    assert told == [True, False]
