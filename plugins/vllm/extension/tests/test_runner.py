"""That vLLM 0.24's list of models for its second runner is added to, and nothing else is touched."""

from __future__ import annotations

import importlib.metadata
import sys
from pathlib import Path
from types import ModuleType

import pytest
import recipe_runner

HERE = Path(recipe_runner.__file__).parent


@pytest.fixture
def config(monkeypatch):
    """The module that has the list."""
    modules = {name: ModuleType(name) for name in ("vllm", "vllm.config", "vllm.config.vllm")}
    for name, module in modules.items():
        monkeypatch.setitem(sys.modules, name, module)
    modules["vllm"].config = modules["vllm.config"]
    modules["vllm.config"].vllm = modules["vllm.config.vllm"]
    return modules["vllm.config.vllm"]


def install():
    """Through the entry point, twice, as each of vLLM's processes loads it."""
    found = [d for d in importlib.metadata.distributions(path=[str(HERE)]) if d.metadata["Name"] == "recipe-vllm"]
    points = [e for d in found for e in d.entry_points if e.group == "vllm.general_plugins"]
    (point,) = [e for e in points if e.module == "recipe_runner"]
    for _ in range(2):
        point.load()()


def test_qwen2_gets_the_runner_of_llama(config):
    config.DEFAULT_V2_MODEL_RUNNER_ARCHITECTURES = frozenset({"LlamaForCausalLM", "MistralForCausalLM"})
    install()
    assert {
        "LlamaForCausalLM",
        "MistralForCausalLM",
        "Qwen2ForCausalLM",
    } == config.DEFAULT_V2_MODEL_RUNNER_ARCHITECTURES


@pytest.mark.parametrize("listed", [None, frozenset(), ["LlamaForCausalLM"]])
def test_another_vllm_is_left_as_it_is(config, listed):
    if listed is not None:
        config.DEFAULT_V2_MODEL_RUNNER_ARCHITECTURES = listed
    install()
    assert getattr(config, "DEFAULT_V2_MODEL_RUNNER_ARCHITECTURES", None) == listed


def test_nothing_happens_without_vllm(monkeypatch):
    for name in [n for n in sys.modules if n == "vllm" or n.startswith("vllm.")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "vllm", None)
    install()
