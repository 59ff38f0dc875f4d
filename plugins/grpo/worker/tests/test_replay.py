"""A row that is computed again and again: recorded when that gives the same numbers, computed as usual otherwise."""

import gc
import weakref

import torch
from torch import nn

from worker.batch import Row, sample
from worker.replay import Replay

from .test_model import stepper


class Weights(nn.Module):
    """One log-probability a token: its id times the weight."""

    def __init__(self):
        super().__init__()
        self.w = nn.Parameter(torch.tensor(2.0))


def row(*ids):
    n = len(ids) - 1
    none = torch.zeros(0)
    return Row([0], torch.tensor([ids]), none, none, n, none, none, none, torch.ones(n))


class Recorder:
    """What `record` does on a GPU: the same calculation with the weights of then, into the same memory."""

    def __init__(self, error=0.0, fails=None):
        self.error, self.fails, self.recorded, self.replayed = error, fails, 0, 0

    def __call__(self, forward):
        if self.fails is not None:
            raise self.fails
        self.recorded += 1
        result = torch.empty_like(forward())

        def replay():
            self.replayed += 1
            result.copy_(forward() + self.error)

        return replay, result


def setting(capture):
    model, calls = Weights(), []
    replay = Replay(model, torch.device("cpu"), capture)

    def ask(*ids):
        def forward(r):
            calls.append(ids)
            return (r.ids[0, 1:] * model.w).detach()

        return replay(row(*ids), forward)

    return model, replay, ask, calls


def test_a_repeated_row_is_recorded():
    recorder = Recorder()
    model, _, ask, _ = setting(recorder)
    assert ask(1, 2, 3).tolist() == [4, 6] and recorder.recorded == 0
    first = ask(1, 2, 3)
    assert recorder.recorded == 1
    with torch.no_grad():
        model.w.fill_(10)  # as an optimizer does: in place
    second = ask(1, 2, 3)
    assert second.tolist() == [20, 30] and recorder.recorded == 1 and recorder.replayed == 2
    assert first.tolist() == [4, 6], "an answer must not change with the next one"


def test_memory_lasts_as_long_as_the_graph_reading_it():
    rows = []

    def capture(forward):  # a graph knows addresses; it keeps nothing alive
        result = forward().clone()
        return (lambda: None), result

    replay = Replay(Weights(), torch.device("cpu"), capture)
    for _ in range(3):
        r = row(1, 2, 3)
        rows.append(weakref.ref(r.ids))
        replay(r, lambda r: r.ids[0, 1:].float())
    del r
    gc.collect()
    assert [seen() is not None for seen in rows] == [False, True, False]


def test_a_recorded_row_is_not_moved_to_the_device():
    moved = []

    class Watched(Row):
        def to(self, device):
            moved.append(device)
            return super().to(device)

    replay = Replay(Weights(), torch.device("cpu"), Recorder())
    for _ in range(5):
        plain = row(1, 2, 3)
        assert replay(Watched(**plain.__dict__), lambda r: r.ids[0, 1:].float()).tolist() == [2, 3]
    assert len(moved) == 2


def test_new_rows_or_moved_weights_are_recorded_anew():
    recorder = Recorder()
    model, _, ask, _ = setting(recorder)
    for _ in range(2):
        ask(1, 2, 3)
    assert ask(1, 2, 4).tolist() == [4, 8] and recorder.recorded == 1
    assert ask(1, 2, 4).tolist() == [4, 8] and recorder.recorded == 2
    model.w = nn.Parameter(torch.tensor(7.0))
    assert ask(1, 2, 4).tolist() == [14, 28] and recorder.recorded == 2
    assert ask(1, 2, 4).tolist() == [14, 28] and recorder.recorded == 3


def test_what_cannot_be_recorded_is_computed_as_usual():
    for recorder, why in (
        (Recorder(fails=RuntimeError("not permitted when stream is capturing\nlong")), "not permitted"),
        (Recorder(error=0.5), "differ by 0.5"),
        (Recorder(error=float("nan")), "differ by nan"),
    ):
        _, replay, ask, calls = setting(recorder)
        for _ in range(4):
            assert ask(1, 2, 3).tolist() == [4, 6]
        assert why in replay.refused and "\n" not in replay.refused
        assert len(calls) <= 4 + 2, "it is not tried again"


def test_without_a_gpu_nothing_is_recorded():
    _, _, ask, calls = setting(None)
    for _ in range(3):
        assert ask(1, 2, 3).tolist() == [4, 6]
    assert len(calls) == 3


def test_a_recorded_pass_keeps_no_copy_of_weights(tmp_path, tiny):
    """Else a graph's memory would hold all of them once more, in the precision of the arithmetic."""
    s = stepper(tmp_path, tiny, model={"dtype": "float32", "compute_dtype": "bfloat16"})
    assert s.policy.autocast == torch.bfloat16
    cached = []
    s.policy.backbone.layers[-1].register_forward_pre_hook(
        lambda *_: cached.append(torch.is_autocast_cache_enabled()) or None
    )
    r = sample(61)
    with torch.no_grad():
        usual = s.policy(r).lp
        with s.policy.uncompiled():
            without = s.policy(r).lp
        again = s.policy(r).lp
    assert torch.equal(without, usual) and torch.equal(again, usual)
    assert cached == [True, False, True]
