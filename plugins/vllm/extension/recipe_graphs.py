"""Decides, before vLLM is imported, whether it compiles the model.

vLLM cuts a model into parts for CUDA graphs with torch.compile, which takes some 23 s of a first start and 5 s of a
later one. Since 0.24 it can record the same graphs without ("breakable CUDA graphs"). On an H100, with 256 sequences of
Qwen2.5-1.5B's shape, both ways decode equally fast (docs/benchmarks/gpu.md). A model is left uncompiled where nothing
is lost by it: attention that is recorded in parts, in 16 bits or in float8 that vLLM makes itself.

The choice is made here because attention is imported one way or the other.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Mapping, MutableMapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from runpy import run_path
from typing import Any

#: Set to "auto" by the plugin where the recipe leaves the choice open.
OPEN = "RECIPE_VLLM_GRAPHS"
#: vLLM's own variable. What a user has set stays.
VARIABLE = "VLLM_USE_BREAKABLE_CUDAGRAPH"
#: Dense decoders whose layers are attention and products of matrices. Layers that carry a state are recorded whole by
#: vLLM 0.24, with the state of one batch in them.
ARCHITECTURES = frozenset({"LlamaForCausalLM", "MistralForCausalLM", "Qwen2ForCausalLM", "Qwen3ForCausalLM"})


def decide(arguments: Sequence[str], environ: MutableMapping[str, str] = os.environ) -> bool:
    """Whether vLLM is now told to record graphs without its compiler. arguments: those of the command line, `serve
    MODEL …`."""
    if environ.get(OPEN) != "auto" or VARIABLE in environ or not nvidia():
        return False
    if not suits(config(arguments)):
        return False
    environ[VARIABLE] = "1"
    return True


def suits(model: Mapping[str, Any]) -> bool:
    """Whether a model of this config.json loses nothing without the compiler."""
    architectures = model.get("architectures") or []
    return bool(architectures) and ARCHITECTURES.issuperset(architectures) and not model.get("quantization_config")


def config(arguments: Sequence[str]) -> dict[str, Any]:
    """The model's config.json; nothing where it cannot be read, which vLLM will explain, or is not what is served."""
    if "--hf-overrides" in arguments or len(arguments) < 2:
        return {}
    model = arguments[1]
    try:
        if os.path.isdir(model):
            found = Path(model, "config.json")
        else:
            from huggingface_hub import hf_hub_download

            at = arguments.index("--revision") + 1 if "--revision" in arguments else None
            found = Path(hf_hub_download(model, "config.json", revision=arguments[at] if at else None))
        read = json.loads(found.read_text())
    except Exception as e:
        logging.getLogger(__name__).debug("no config.json of %s: %s", model, e)
        return {}
    return read if isinstance(read, dict) else {}


def nvidia() -> bool:
    """Whether PyTorch is built for NVIDIA's GPUs: vLLM's graphs without a compiler are slower on others. It is not
    imported for that: vLLM sets variables before it does so."""
    torch = find_spec("torch")
    if torch is None or torch.origin is None:
        return False
    try:
        return run_path(str(Path(torch.origin).with_name("version.py"))).get("cuda") is not None
    except OSError:
        return False
