"""That nothing is looked for in what was imported while graphs are recorded."""

from __future__ import annotations

import gc
import sys
from types import ModuleType

import pytest
import recipe_freeze


class Engine:
    """What vLLM's does: tells how much is kept out of garbage collection while graphs are recorded."""

    frozen = -1

    def prepare(self, vllm_config, fails=False):
        self.frozen = gc.get_freeze_count()
        if fails:
            raise MemoryError
        return vllm_config


@pytest.fixture
def vllm(monkeypatch):
    """The modules that are looked for."""
    names = ("vllm", "vllm.utils", "vllm.utils.gc_utils", "vllm.v1", "vllm.v1.engine", "vllm.v1.engine.core",
             "vllm.v1.worker", "vllm.v1.worker.gpu_worker")  # fmt: skip
    modules = {n: ModuleType(n) for n in names}
    for name, module in modules.items():
        monkeypatch.setitem(sys.modules, name, module)
        parent, _, last = name.rpartition(".")
        if parent:
            setattr(modules[parent], last, module)
    core = type("EngineCore", (Engine,), {"_initialize_kv_caches": Engine.prepare})
    modules["vllm.v1.engine.core"].EngineCore = core
    modules["vllm.v1.worker.gpu_worker"].Worker = type(
        "Worker", (Engine,), {"compile_or_warm_up_model": Engine.prepare}
    )
    modules["vllm.utils.gc_utils"].freeze_gc_heap = gc.freeze
    return modules


def test_no_garbage_is_collected_while_recording(vllm, load_plugin):
    load_plugin("recipe_freeze")
    engine = vllm["vllm.v1.engine.core"].EngineCore()
    gc.unfreeze()
    assert engine._initialize_kv_caches("config") == "config"
    assert engine.frozen > 1000, "what was in memory is frozen"
    assert gc.get_freeze_count() == 0
    with pytest.raises(MemoryError):
        engine._initialize_kv_caches("config", fails=True)
    assert gc.get_freeze_count() == 0


def test_a_vllm_that_freezes_by_itself_is_left_alone(vllm, load_plugin):
    vllm["vllm.utils.gc_utils"].freeze_gc_for_cudagraph_capture = object()
    load_plugin("recipe_freeze")
    assert vllm["vllm.v1.engine.core"].EngineCore._initialize_kv_caches is Engine.prepare


def test_a_vllm_without_such_an_engine_is_left_alone(vllm, monkeypatch, load_plugin):
    core = vllm["vllm.v1.engine.core"].EngineCore
    del core._initialize_kv_caches
    load_plugin("recipe_freeze")
    assert not hasattr(core, "_initialize_kv_caches")
    monkeypatch.setitem(sys.modules, "vllm.v1.engine.core", None)
    recipe_freeze.install()


def test_no_garbage_is_collected_in_a_worker_process(vllm):
    worker = vllm["vllm.v1.worker.gpu_worker"].Worker
    for _ in range(2):
        recipe_freeze.in_worker()
    assert worker.compile_or_warm_up_model.of_vllm is Engine.prepare
    engine = worker()
    gc.unfreeze()
    try:
        assert engine.compile_or_warm_up_model("config") == "config"
        assert engine.frozen > 1000, "what was in memory is frozen"
    finally:
        gc.unfreeze()


@pytest.mark.parametrize("own", [True, False], ids=["freezes by itself", "does not keep its heap frozen"])
def test_a_worker_of_another_vllm_is_left_alone(vllm, own):
    if own:
        vllm["vllm.utils.gc_utils"].freeze_gc_for_cudagraph_capture = object()
    else:
        del vllm["vllm.utils.gc_utils"].freeze_gc_heap
    recipe_freeze.in_worker()
    assert vllm["vllm.v1.worker.gpu_worker"].Worker.compile_or_warm_up_model is Engine.prepare
