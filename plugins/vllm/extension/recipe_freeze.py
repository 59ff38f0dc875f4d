"""CUDA graphs recorded without looking for garbage before each.

vLLM's second model runner collects garbage before each of some hundred graphs, which in 0.24 takes 20 of 27 s: what was
imported is looked through each time. Later versions keep it out themselves, as the first runner always has.

vLLM finds `install` by the entry point in recipe_vllm.dist-info, in each of its processes; recipe_vllm.py calls
`in_worker` where graphs are recorded in a process of its own. Nothing is changed where vLLM lacks what is looked for.
"""

from __future__ import annotations

import gc
from typing import Any

#: What vLLM does so with itself.
OWN = "freeze_gc_for_cudagraph_capture"


def install() -> None:
    """Keeps what is in memory out of garbage collection while an engine measures memory and records graphs."""
    try:
        from vllm.utils import gc_utils
        from vllm.v1.engine.core import EngineCore
    except ImportError:
        return
    prepare = getattr(EngineCore, "_initialize_kv_caches", None)
    if prepare is None or hasattr(prepare, "of_vllm") or hasattr(gc_utils, OWN):
        return

    def _initialize_kv_caches(engine: Any, *args: Any, **kwargs: Any) -> Any:
        gc.collect()
        gc.freeze()
        try:
            return prepare(engine, *args, **kwargs)
        finally:
            gc.unfreeze()

    _initialize_kv_caches.of_vllm = prepare
    EngineCore._initialize_kv_caches = _initialize_kv_caches


def in_worker() -> None:
    """The same for a worker in a process of its own. vLLM freezes its heap itself when it has recorded its graphs."""
    try:
        from vllm.utils import gc_utils
        from vllm.v1.worker.gpu_worker import Worker
    except ImportError:
        return
    record = getattr(Worker, "compile_or_warm_up_model", None)
    freezes = hasattr(gc_utils, "freeze_gc_heap") and not hasattr(gc_utils, OWN)
    if record is None or hasattr(record, "of_vllm") or not freezes:
        return

    def compile_or_warm_up_model(worker: Any, *args: Any, **kwargs: Any) -> Any:
        gc.collect()
        gc.freeze()
        return record(worker, *args, **kwargs)

    compile_or_warm_up_model.of_vllm = record
    Worker.compile_or_warm_up_model = compile_or_warm_up_model
