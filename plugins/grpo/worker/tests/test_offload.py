"""optimizer.offload: moments that live in the host's memory change no number and no checkpoint."""

import contextlib
import copy
import json
import math
import random
from pathlib import Path

import pytest
import torch
from recipe_sdk import Checkpoint, errors
from recipe_sdk.checkpoint import newest, read_state
from recipe_sdk.fields import ConfigError
from torch.optim.adamw import adamw

from worker import auto, checkpoint, config, offload, optim

from .conftest import attached, settings
from .test_model import SETTINGS, after_steps, stepper

CPU = torch.device("cpu")
SHAPES = {"embedding": (3001, 7), "bias": (5,), "matrix": (64, 129), "odd": (33, 3, 2), "nothing": (0, 4), "one": ()}


def parameters(dtype=torch.float32, seed=0):
    """Made-up weights; the largest is cut into several pieces of 8 KiB, the small ones share one."""
    g = torch.Generator().manual_seed(seed)
    made = {n: torch.nn.Parameter(torch.randn(s, generator=g).to(dtype)) for n, s in SHAPES.items()}
    made["narrow"] = torch.nn.Parameter(torch.randn(3000, generator=g).to(torch.bfloat16))
    made["transposed"] = torch.nn.Parameter(torch.randn(70, 9, generator=g).to(dtype).t())
    made["unused"] = torch.nn.Parameter(torch.randn(100, generator=g).to(dtype))
    return made


@torch.no_grad()
def give_gradients(of, step):
    """Of all but one; another parameter has none in the first step."""
    g = torch.Generator().manual_seed(100 + step)
    for name, p in of.items():
        gradient = torch.empty_like(p).copy_(torch.randn(p.shape, generator=g))  # laid out as autograd does
        missing = name == "unused" or (name == "odd" and step == 0)
        p.grad = None if missing else gradient


def train(optimizer, of, steps, first=0):
    for k in range(first, first + steps):
        give_gradients(of, k)
        for group in optimizer.param_groups:
            group["lr"], group["weight_decay"] = 0.1 / (k + 1), 0.01 * k
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)


def same(a, b):
    """Whether two optimizers' states are the same bit for bit."""
    a, b = a.state_dict()["state"], b.state_dict()["state"]
    assert a.keys() == b.keys()
    for number, state in a.items():
        assert state.keys() == b[number].keys()
        for name, value in state.items():
            other = b[number][name]
            assert (value.dtype, value.shape) == (other.dtype, other.shape) and torch.equal(value, other), (
                number,
                name,
            )


@pytest.mark.parametrize("fused", [None, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_the_numbers_equal_torchs_bit_for_bit(dtype, fused):
    ours, plain = parameters(dtype), parameters(dtype)
    if fused:  # torch's kernel on the CPU rounds by where a number lies in memory; ours lie row by row
        del ours["transposed"], plain["transposed"]
    a = offload.AdamW(ours.values(), 0.1, (0.8, 0.95), 1e-6, 0.01, piece=8192, fused=fused)
    b = torch.optim.AdamW(plain.values(), 0.1, (0.8, 0.95), 1e-6, 0.01, fused=fused)
    assert max(len(x.slices) for x in a.pieces) >= 3, "small ones share a piece"
    assert sum(s.parameter is ours["embedding"] for x in a.pieces for s in x.slices) > 3, "a large one is cut"
    train(a, ours, 5)
    train(b, plain, 5)
    for name in ours:
        assert torch.equal(ours[name], plain[name]), name
    same(a, b)
    assert ours["unused"] not in a.state


def test_a_step_that_is_left_out_changes_nothing():
    """As torch's fused AdamW leaves it out: nobody waits for the value."""
    ours, plain = parameters(), parameters()
    for of in (ours, plain):
        del of["transposed"]  # as above
    a = offload.AdamW(ours.values(), 0.1, piece=8192, fused=True)
    b = torch.optim.AdamW(plain.values(), 0.1, fused=True)
    for k, left_out in enumerate([True, False, True, False]):
        before = {n: p.detach().clone() for n, p in ours.items()}
        for optimizer, of in ((a, ours), (b, plain)):
            assert optim.leave_out(optimizer, torch.tensor(left_out))
            train(optimizer, of, 1, k)
        assert all(torch.equal(ours[n], plain[n]) for n in ours)
        assert all(torch.equal(ours[n], before[n]) for n in ours) == left_out
        same(a, b)
    assert a.state[ours["matrix"]]["step"] == 2


def test_a_state_moves_in_both_directions():
    def made(kind):
        p = parameters()
        named = {"piece": 8192} if kind is offload.AdamW else {}
        return p, kind(p.values(), 0.1, **named)

    for one, other in ((offload.AdamW, torch.optim.AdamW), (torch.optim.AdamW, offload.AdamW),
                       (offload.AdamW, offload.AdamW)):  # fmt: skip
        (wa, a), (wb, b) = made(one), made(other)
        train(a, wa, 3)
        train(b, wb, 1, 7)  # what is loaded takes the place of what was there
        b.load_state_dict(copy.deepcopy(a.state_dict()))
        same(a, b)
        for name in wa:
            wb[name].data.copy_(wa[name])
        train(a, wa, 2, 3)
        train(b, wb, 2, 3)
        assert all(torch.equal(wa[name], wb[name]) for name in wa)
        same(a, b)


def test_a_parameter_without_a_saved_state_begins_anew():
    ours, plain = parameters(), parameters()
    a, b = offload.AdamW(ours.values(), 0.1, piece=8192), torch.optim.AdamW(plain.values(), 0.1)
    for optimizer, of in ((a, ours), (b, plain)):
        train(optimizer, of, 2)
        saved = copy.deepcopy(optimizer.state_dict())
        del saved["state"][0]
        optimizer.load_state_dict(saved)
        train(optimizer, of, 2, 2)
    same(a, b)


def test_moments_are_saved_as_tensors_of_their_own(tmp_path):
    """torch.save writes a view's whole storage; all parameters together lie in two large ones."""
    p = parameters()
    optimizer = offload.AdamW(p.values(), 0.1)
    train(optimizer, p, 2)
    torch.save(optimizer.state_dict(), tmp_path / "all.pt")
    torch.save(optimizer.state_dict()["state"][1], tmp_path / "bias.pt")
    assert (tmp_path / "bias.pt").stat().st_size < 4000
    loaded = torch.load(tmp_path / "all.pt", weights_only=True)["state"]
    assert torch.equal(loaded[0]["exp_avg_sq"], optimizer.state[p["embedding"]]["exp_avg_sq"])


# ---- the order of copies and arithmetic, on streams that do nothing before they have to ----


class Event:
    def __init__(self, stream):
        self.stream, self.done = stream, False

    def mark(self):
        self.done = True
        return True

    def synchronize(self):
        self.stream.machine.run_until(lambda: self.done)

    def query(self):
        machine = self.stream.machine
        machine.run(machine.chance.choice(machine.streams), machine.chance.randint(0, 8))
        return self.done


class Stream:
    """Puts work into a queue, as a GPU's stream does."""

    def __init__(self, machine):
        self.machine, self.queue = machine, []

    def record_event(self):
        event = Event(self)
        self.queue.append(event.mark)
        return event

    def wait_event(self, event):
        self.queue.append(lambda: event.done)

    def wait_stream(self, other):
        self.wait_event(other.record_event())


class Machine:
    """Streams whose work is done as late or as early as their events allow, in an order of chance."""

    def __init__(self, seed):
        self.chance, self.streams, self.now = random.Random(seed), [Stream(self) for _ in range(3)], None
        self.now = self.streams[1]

    def run_until(self, done):
        while not done():
            self.run(self.chance.choice([s for s in self.streams if s.queue]), self.chance.randint(1, 8))

    def run(self, stream, most):
        for _ in range(most):
            if not stream.queue or not stream.queue[0]():
                break
            stream.queue.pop(0)


@contextlib.contextmanager
def on(stream):
    stream.machine.now, before = stream, stream.machine.now
    yield
    stream.machine.now = before


class Late(offload.AdamW):
    """Does its copies and its arithmetic on such streams. Memory that it gives back, and gradients, are overwritten by
    what comes next on the stream of the arithmetic, as a GPU's allocator allows."""

    def attach(self, machine, room=None):
        self.machine, self.room, self.pool, self.ahead = machine, room, [], 0

    def streams(self):
        return tuple(self.machine.streams)

    def later(self, action, stream=None):
        (stream or self.machine.now).queue.append(lambda: (action(), True)[1])

    def buffer(self):
        return self.pool.pop() if self.pool else super().buffer()

    def load(self, *what):
        self.later(lambda: offload.AdamW.load(self, *what))

    def store(self, *what):
        self.later(lambda: offload.AdamW.store(self, *what))

    def drop(self, *what):
        self.freed(super().drop, *what)

    def make_room(self):
        self.freed(super().make_room)

    def finish(self):
        self.freed(super().finish)

    def freed(self, action, *what):
        before = [x.buffer for x in (*self.prefetched, *self.going)]
        action(*what)
        held = {id(x.buffer) for x in (*self.prefetched, *self.going)}
        self.pool += [x for x in before if id(x) not in held]

    def overwrite(self, some):
        for x in some:
            self.later(lambda x=x: x.untyped_storage().fill_(255), self.machine.streams[1])


def busily(a, of, steps):
    """Trains while other work, by chance, goes on, makes room and needs it."""
    chance = a.machine.chance
    for k in range(steps):
        a.overwrite(a.pool)
        give_gradients(of, k)
        for group in a.param_groups:
            group["lr"], group["weight_decay"] = 0.1 / (k + 1), 0.01 * k
        for _ in range(chance.randint(0, 4)):
            a.make_room()
            a.prefetch()
            if chance.random() < 0.2:
                a.drop()
            a.overwrite(a.pool)
            a.machine.run(chance.choice(a.machine.streams), chance.randint(0, 8))
        a.ahead += len(a.prefetched)
        gradients = [p.grad for p in of.values() if p.grad is not None]
        a.step()
        a.zero_grad(set_to_none=True)
        a.overwrite(gradients)


def late_and_plain(monkeypatch, seed, ahead, cls=Late):
    monkeypatch.setattr(offload, "on", on)
    ours, plain = parameters(), parameters()
    a, b = cls(ours.values(), 0.1, piece=8192), torch.optim.AdamW(plain.values(), 0.1)
    machine = Machine(seed)
    monkeypatch.setattr(offload, "adamw", lambda *some, **named: a.later(lambda: adamw(*some, **named)))
    a.attach(machine, (lambda head: machine.chance.choice([-1e9, -1, 0, 20_000, 50_000, math.inf])) if ahead else None)
    busily(a, ours, 4)
    train(b, plain, 4)
    a.idle = not any(s.queue for s in machine.streams[::2])
    machine.run_until(lambda: not any(s.queue for s in machine.streams))
    return all(torch.equal(ours[n], plain[n]) for n in ours), a, b


@pytest.mark.parametrize("ahead", [False, True])
def test_no_order_of_streams_changes_a_number(monkeypatch, ahead):
    pieces = 0
    for seed in range(40):
        equal, a, b = late_and_plain(monkeypatch, seed, ahead)
        assert equal
        same(a, b)
        assert ahead or a.idle, "nothing is under way after a step"
        pieces += a.ahead
    assert ahead == (pieces > 40)


@pytest.mark.parametrize("ahead", [False, True])
@pytest.mark.parametrize("forgotten", ["loaded", "updated", "stored"])
def test_the_check_notices_a_missing_wait(monkeypatch, forgotten, ahead):
    waiter = {"loaded": 1, "updated": 2, "stored": 0}[forgotten]

    class Hasty(Stream):
        def wait_event(self, event): ...

    init = Machine.__init__

    def hasty(self, seed):
        init(self, seed)
        self.streams[waiter] = Hasty(self)
        self.now = self.streams[1]

    monkeypatch.setattr(Machine, "__init__", hasty)
    assert not all(late_and_plain(monkeypatch, seed, ahead)[0] for seed in range(40))


@pytest.mark.parametrize("forgotten", ["what is dropped", "what is prefetched", "what goes"])
def test_the_check_notices_memory_used_too_early(monkeypatch, forgotten):
    class Careless(Late):
        def drop(self, *what):
            if forgotten == "what is dropped":
                for x in self.prefetched:
                    x.ready = Event(None)
                    x.ready.done = True
            super().drop(*what)

        def prefetch(self):
            if forgotten == "what is prefetched":
                with monkeypatch.context() as m:
                    m.setattr(Stream, "wait_stream", lambda *_: None)
                    return super().prefetch()
            return super().prefetch()

        def finish(self):
            if forgotten == "what goes":
                self.freed(self.going.clear)
            super().finish()

    assert not all(late_and_plain(monkeypatch, seed, True, Careless)[0] for seed in range(40))


# ---- in the trainer ----


@pytest.fixture
def small_pieces(monkeypatch):
    monkeypatch.setitem(offload.AdamW.__init__.__kwdefaults__, "piece", 4096)


@pytest.mark.parametrize("name", ["grpo", "lora", "mini-batches", "mixed"])
def test_a_step_is_the_same_with_and_without(tmp_path, tiny, small_pieces, name):
    plain = stepper(tmp_path, tiny, **SETTINGS[name])
    away = stepper(tmp_path, tiny, **{**SETTINGS[name], "optimizer": {"offload": True, "schedule": "linear"}})
    plain = stepper(tmp_path, tiny, **{**SETTINGS[name], "optimizer": {"schedule": "linear"}})
    assert isinstance(away.optimizer, offload.AdamW) and len(away.optimizer.pieces) > 3
    (losses, want), (others, got) = after_steps(plain, 3), after_steps(away, 3)
    assert losses == others and all(torch.equal(want[n], got[n]) for n in want)
    same(plain.optimizer, away.optimizer)


def test_infinite_gradients_leave_the_moments_alone(tmp_path, tiny, small_pieces):
    s = stepper(tmp_path, tiny, optimizer={"offload": True})
    after_steps(s, 1)
    before = copy.deepcopy(s.optimizer.state_dict()["state"])
    for p in s.parameters:
        p.grad = torch.full_like(p, float("inf"))
    assert s.move(1)["skipped"]
    for number, state in s.optimizer.state_dict()["state"].items():
        assert all(torch.equal(value, before[number][name]) for name, value in state.items())


@pytest.mark.parametrize("written, read", [(True, False), (False, True), (True, True)])
def test_a_run_goes_on_with_the_other_setting(tmp_path, tiny, small_pieces, written, read):
    first = stepper(tmp_path, tiny, optimizer={"offload": written})
    after_steps(first, 2)
    bridge = attached(first)
    bridge.step = 2
    saved = Path(bridge.save("asked"))
    second = stepper(tmp_path, tiny, optimizer={"offload": read})
    checkpoint.load_weights(saved, second.policy)
    checkpoint.load_training(Checkpoint(saved, 2, read_state(saved)), second.policy, second.optimizer, name="adamw")
    same(first.optimizer, second.optimizer)
    (losses, want), (others, got) = after_steps(first, 2), after_steps(second, 2)
    assert losses == others and all(torch.equal(want[n], got[n]) for n in want)


def test_checkpoints_are_the_same_with_and_without(tmp_path, tiny, small_pieces):
    stored = []
    for away in (False, True):
        s = stepper(tmp_path / str(away), tiny, optimizer={"offload": away})
        after_steps(s, 2)
        bridge = attached(s)
        bridge.step = 2
        bridge.save("asked")
        path = newest(s.config.checkpoint_dir) / "training" / "optimizer.pt"
        stored.append((torch.load(path, weights_only=True), path.stat().st_size))
    (a, size), (b, other) = stored
    assert a["state"].keys() == b["state"].keys() and abs(size - other) < 4096
    for name, state in a["state"].items():
        assert all(torch.equal(value, b["state"][name][k]) for k, value in state.items())
    assert a["param_groups"] == b["param_groups"]


@pytest.mark.parametrize("name", ["adafactor", "adamw_8bit", "sgd"])
def test_only_adamw_has_moments_that_can_be_away(tmp_path, tiny, name):
    with pytest.raises(ConfigError, match=rf"optimizer.offload: only AdamW's moments .*{name}.* Leave offload out"):
        config.from_dict(settings(tmp_path, tiny, "http://unused", optimizer={"name": name, "offload": True}))


def test_a_host_that_refuses_memory_has_a_remedy(tmp_path, tiny, monkeypatch):
    def refused(*_, **__):
        raise OSError(12, "Cannot allocate memory")

    monkeypatch.setattr(offload.mmap, "mmap", refused)
    with pytest.raises(errors.WorkerError, match=r"optimizer.offload: the host refuses .* GiB") as e:
        stepper(tmp_path, tiny, optimizer={"offload": True})
    assert e.value.checks


def test_the_estimate_counts_pieces_instead_of_moments():
    seven = auto.Shape(7_615_616_512, 7_615_616_512, 28, 3584, 18_944, 152_064, 8192)
    x = auto.Settings("float32", "bfloat16")
    here, away = (auto.fixed(seven, x, "adamw", False, offload=o) for o in (False, True))
    assert here - away == 2 * 4 * seven.parameters - 768 * (1 << 20)
    few = auto.Shape(seven.parameters, 1_000_000, 28, 3584, 18_944, 152_064, 8192)
    assert auto.fixed(few, x, "adamw", False, True) == auto.fixed(few, x, "adamw", False)


def test_moments_are_counted_per_rank(tiny):
    p = torch.nn.Parameter(torch.zeros(10, 3, dtype=torch.bfloat16))
    assert optim.moments([p]) == 2 * 30 * 2
    assert json.dumps(optim.moments([p]))
