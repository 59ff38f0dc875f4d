"""That vLLM's second runner copies sampling settings when a step brings requests, and then only."""

from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace

import pytest
import recipe_staged

RUNNER = "vllm.v1.worker.gpu.model_runner"


@pytest.fixture
def runner(monkeypatch):
    """The module that has the runner."""
    names = RUNNER.split(".")
    for name in (".".join(names[: i + 1]) for i in range(len(names))):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    return sys.modules[RUNNER]


def test_settings_are_copied_with_new_requests(runner):
    class GPUModelRunner:
        def __init__(self):
            self.added = []

        def add_requests(self, scheduler_output):
            self.added.append(scheduler_output.scheduled_new_reqs)

    runner.GPUModelRunner = GPUModelRunner
    for _ in range(2):  # several models in one process
        recipe_staged.in_worker()
    model = GPUModelRunner()
    for new in ([], ["a"], [], ["b", "c"]):
        model.add_requests(SimpleNamespace(scheduled_new_reqs=new))
    assert model.added == [["a"], ["b", "c"]]


def test_a_runner_without_it_is_left_as_it_is(runner):
    class GPUModelRunner:
        pass

    runner.GPUModelRunner = GPUModelRunner
    recipe_staged.in_worker()
    assert not hasattr(GPUModelRunner, "add_requests")


def test_nothing_happens_without_vllm(monkeypatch):
    for name in [n for n in sys.modules if n == "vllm" or n.startswith("vllm.")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "vllm", None)
    recipe_staged.in_worker()
