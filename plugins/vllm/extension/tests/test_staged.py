"""That vLLM's second runner copies sampling settings when a step brings requests, and then only."""

from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace

import pytest

RUNNER = "vllm.v1.worker.gpu.model_runner"


@pytest.fixture
def runner(monkeypatch):
    """The module that has the runner."""
    names = RUNNER.split(".")
    for name in (".".join(names[: i + 1]) for i in range(len(names))):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    return sys.modules[RUNNER]


def test_settings_are_copied_when_a_step_brings_requests(runner, load_plugin):
    class GPUModelRunner:
        def __init__(self):
            self.added = []

        def add_requests(self, scheduler_output):
            self.added.append(scheduler_output.scheduled_new_reqs)

    runner.GPUModelRunner = GPUModelRunner
    for _ in range(2):  # vLLM loads plugins in each process, which may be a fork
        load_plugin("recipe_staged")
    model = GPUModelRunner()
    for new in ([], ["a"], [], ["b", "c"]):
        model.add_requests(SimpleNamespace(scheduled_new_reqs=new))
    assert model.added == [["a"], ["b", "c"]]


def test_a_runner_without_it_is_left_as_it_is(runner, load_plugin):
    class GPUModelRunner:
        pass

    runner.GPUModelRunner = GPUModelRunner
    load_plugin("recipe_staged")
    assert not hasattr(GPUModelRunner, "add_requests")


def test_nothing_happens_without_vllm(monkeypatch, load_plugin):
    for name in [n for n in sys.modules if n == "vllm" or n.startswith("vllm.")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "vllm", None)
    load_plugin("recipe_staged")
