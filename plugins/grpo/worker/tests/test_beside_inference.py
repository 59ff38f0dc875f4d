"""What a worker does on a GPU on which inference still starts, and what it leaves to it."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
from recipe_sdk import stage
from torch import nn

from worker import early, train
from worker.tests.test_model import stepper

GPU = torch.device("cuda")


@pytest.mark.parametrize(("free", "room"), [(5 << 30, True), ((4 << 30) + 3_000, False)])
def test_the_model_and_inference_must_both_fit(monkeypatch, free, room):
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda _: (free, 80 << 30))
    e = early.Early(SimpleNamespace(), GPU)
    assert not e.room(), "how large a model is that was not built is not known"
    e.built = SimpleNamespace(model=nn.Linear(32, 32))  # 4,224 bytes
    assert e.room() == room
    assert early.Early(SimpleNamespace(), torch.device("cpu")).room()


def test_no_compilation_takes_memory_of_inference(tmp_path, tiny):
    s = stepper(tmp_path, tiny, model={"row_tokens": None})
    assert s.warm_up(s.config) is not None
    free = int(s.sizing.machine.free)
    for later, enough in ((free // 4, True), (2 * free, False)):
        assert (s.warm_up(s.config, later) is not None) == enough
        assert s.sizing.choice is None, "it is decided anew when there is a batch"


class Compiling:
    """A trainer as far as it compiles. room: whether there is memory beside inference; MemoryError: that is seen too
    late."""

    def __init__(self, prepare: str, room: bool | type[MemoryError]):
        self.asked: list[int] = []
        phases = SimpleNamespace(phase=lambda *_, **__: None)
        self.bridge = SimpleNamespace(block=SimpleNamespace(prepare=prepare), device=torch.device("cpu"),
                                      begin=lambda: None, events=phases)  # fmt: skip
        self.config = SimpleNamespace(model=SimpleNamespace(compile=True))
        self.policy = nn.Linear(1, 1)
        self.policy.causal = SimpleNamespace()
        self.stepper = SimpleNamespace(sizing=SimpleNamespace(uncompiled=""), warm_up=self.took)
        self.room, self.warm = room, False

    def took(self, _: object, later: int) -> float | None:
        self.asked.append(later)
        if later and self.room is MemoryError:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return None if later and not self.room else 0.5

    def __call__(self) -> list[int]:
        train.Trainer.warm_up(self)
        return self.asked


def test_nothing_is_compiled_twice_beside_inference(monkeypatch):
    monkeypatch.setattr(train.compiled, "note_time", lambda *_: None)
    trainer = Compiling(stage.BESIDE, True)
    assert trainer() == trainer() == [early.LATER]
    trainer = Compiling("device", True)
    assert trainer() == [0], "a device of its own holds nobody up"
    trainer = Compiling(stage.BESIDE, False)
    trainer()
    trainer.bridge.block.prepare = ""
    assert trainer() == trainer() == [early.LATER, 0]
    trainer = Compiling(stage.BESIDE, MemoryError)
    trainer()
    trainer.bridge.block.prepare = ""
    assert trainer() == trainer() == [early.LATER, 0]
