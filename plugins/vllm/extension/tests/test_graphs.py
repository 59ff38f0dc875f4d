"""Which models vLLM is told not to compile."""

from __future__ import annotations

import json
import sys
from types import ModuleType

import pytest
import recipe_graphs


@pytest.fixture
def gpu(monkeypatch, tmp_path):
    """A PyTorch for NVIDIA's GPUs, which is not imported; returns the file that says what it is built for."""
    folder = tmp_path / "packages" / "torch"
    folder.mkdir(parents=True)
    (folder / "__init__.py").write_text("raise RuntimeError('imported')")
    version = folder / "version.py"
    version.write_text(
        "from typing import Optional\n__version__ = '2.11.0'\ncuda: Optional[str] = '13.0'\nhip = None\n"
    )
    monkeypatch.syspath_prepend(str(folder.parent))
    for name in [n for n in sys.modules if n == "torch" or n.startswith("torch.")]:
        monkeypatch.delitem(sys.modules, name)
    return version


@pytest.fixture
def model(tmp_path):
    """Writes a model's config.json and gives the arguments that serve it."""

    def write(**config):
        (tmp_path / "config.json").write_text(json.dumps(config))
        return ["serve", str(tmp_path), "--port", "1"]

    return write


DENSE = {"architectures": ["Qwen2ForCausalLM"]}


def test_a_dense_model_is_not_compiled(gpu, model):
    for name in recipe_graphs.ARCHITECTURES:
        environ = {recipe_graphs.OPEN: "auto"}
        assert recipe_graphs.decide(model(architectures=[name]), environ)
        assert environ[recipe_graphs.VARIABLE] == "1"


@pytest.mark.parametrize("config", [
    {"architectures": ["Qwen3NextForCausalLM"]}, {"architectures": ["GptOssForCausalLM"]},
    {**DENSE, "quantization_config": {"quant_method": "fp8"}}, {"architectures": []}, {"architectures": None}, {},
])  # fmt: skip
def test_other_models_are_compiled(gpu, model, config):
    environ = {recipe_graphs.OPEN: "auto"}
    assert not recipe_graphs.decide(model(**config), environ)
    assert recipe_graphs.VARIABLE not in environ


def test_what_was_decided_stays(gpu, model):
    for environ in ({}, {recipe_graphs.OPEN: "auto", recipe_graphs.VARIABLE: "0"}):
        before = dict(environ)
        assert not recipe_graphs.decide(model(**DENSE), environ)
        assert environ == before


def test_a_model_that_cannot_be_read_is_left_to_vllm(gpu, tmp_path, model):
    environ = {recipe_graphs.OPEN: "auto"}
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "config.json").write_text("{")
    (tmp_path / "list").mkdir()
    (tmp_path / "list" / "config.json").write_text("[]")
    overridden = [*model(**DENSE), "--hf-overrides", '{"architectures": ["X"]}']
    for arguments in (["serve"], ["serve", str(tmp_path / "broken")], ["serve", str(tmp_path / "list")], overridden):
        assert not recipe_graphs.decide(arguments, environ)


def test_a_hub_model_is_requested_at_its_revision(gpu, monkeypatch, tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(DENSE))
    asked = []

    def hf_hub_download(name, file, revision):
        asked.append((name, file, revision))
        return str(tmp_path / file)

    hub = ModuleType("huggingface_hub")
    hub.hf_hub_download = hf_hub_download
    monkeypatch.setitem(sys.modules, "huggingface_hub", hub)
    assert recipe_graphs.decide(["serve", "org/m", "--revision", "r1"], {recipe_graphs.OPEN: "auto"})
    assert recipe_graphs.decide(["serve", "org/m"], {recipe_graphs.OPEN: "auto"})
    assert asked == [("org/m", "config.json", "r1"), ("org/m", "config.json", None)]


def test_other_gpus_compile(gpu, model):
    gpu.write_text("cuda = None\nhip = '7.0'\n")
    assert not recipe_graphs.decide(model(**DENSE), {recipe_graphs.OPEN: "auto"})
    gpu.unlink()
    assert not recipe_graphs.decide(model(**DENSE), {recipe_graphs.OPEN: "auto"})
