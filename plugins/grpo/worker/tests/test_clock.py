"""Time per phase: on a GPU the device's own, read once at the end of a step."""

import types

import pytest
import torch

from worker.metrics import Clock


def test_gpu_times_are_read_once_without_waiting(monkeypatch):
    now, waits = [0.0], []

    class Event:
        def __init__(self, enable_timing):
            assert enable_timing

        def record(self):
            self.at = now[0]

        def synchronize(self):
            waits.append(self)

        def elapsed_time(self, other):
            assert waits[-1] is other, "the device was asked before it was done"
            return other.at - self.at  # milliseconds

    monkeypatch.setattr(torch.cuda, "Event", Event)
    # moments of optimizer.offload may still be on their way to the host
    monkeypatch.setattr(torch.cuda, "synchronize", lambda *_: pytest.fail("it was waited for all of the device"))
    clock = Clock(types.SimpleNamespace(type="cuda"))
    for name, length in (("forward", 200.0), ("backward", 300.0), ("forward", 50.0)):
        with clock.phase(name):
            now[0] += length
    assert clock.last == "forward" and not waits
    assert clock.metrics() == {"time/forward": 0.25, "time/backward": 0.3}
    assert clock.metrics() == {"time/forward": 0.25, "time/backward": 0.3} and len(waits) == 3


def test_the_hosts_clock_adds_up_phases():
    clock = Clock(torch.device("cpu"))
    for name in ("forward", "backward", "forward"):
        with clock.phase(name):
            pass
    assert set(clock.metrics()) == {"time/forward", "time/backward"} and min(clock.metrics().values()) > 0
