"""That vLLM 0.24's list of models for its second runner is added to, and nothing else is touched."""

from __future__ import annotations

import sys
from types import ModuleType

import pytest


@pytest.fixture
def config(monkeypatch):
    """The module that has the list."""
    modules = {name: ModuleType(name) for name in ("vllm", "vllm.config", "vllm.config.vllm")}
    for name, module in modules.items():
        monkeypatch.setitem(sys.modules, name, module)
    modules["vllm"].config = modules["vllm.config"]
    modules["vllm.config"].vllm = modules["vllm.config.vllm"]
    return modules["vllm.config.vllm"]


def test_qwen2_gets_the_runner_of_llama(config, load_plugin):
    config.DEFAULT_V2_MODEL_RUNNER_ARCHITECTURES = frozenset({"LlamaForCausalLM", "MistralForCausalLM"})
    load_plugin("recipe_runner")
    assert {
        "LlamaForCausalLM",
        "MistralForCausalLM",
        "Qwen2ForCausalLM",
    } == config.DEFAULT_V2_MODEL_RUNNER_ARCHITECTURES


@pytest.mark.parametrize("listed", [None, frozenset(), ["LlamaForCausalLM"]])
def test_another_vllm_is_left_as_it_is(config, listed, load_plugin):
    if listed is not None:
        config.DEFAULT_V2_MODEL_RUNNER_ARCHITECTURES = listed
    load_plugin("recipe_runner")
    assert getattr(config, "DEFAULT_V2_MODEL_RUNNER_ARCHITECTURES", None) == listed


def test_nothing_happens_without_vllm(monkeypatch, load_plugin):
    for name in [n for n in sys.modules if n == "vllm" or n.startswith("vllm.")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "vllm", None)
    load_plugin("recipe_runner")
