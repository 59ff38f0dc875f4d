"""Start-up work that needs only a CPU: done while inference starts on the same GPU."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import TYPE_CHECKING

from . import compiled, host
from .config import Config

if TYPE_CHECKING:
    import torch

    from .model import Built

CHUNK = 16 << 20
# Of a device's memory: what inference still takes when it holds its cache, for CUDA graphs, kernels that it compiles
# and its first batches. A guess on the safe side: where it is too much, what could be done now is done at the start.
LATER = 4 << 30


class Early:
    """What was made in host memory for `device`, which is not touched: not even asked what it can do."""

    def __init__(self, c: Config, device: torch.device):
        self.config, self.device = c, device
        self.built: Built | None = None

    def load(self) -> None:
        """Imports the model's code, reads its files and builds it, with its adapters. What is wrong with the model is
        left to the start: there it is explained."""
        c = self.config
        with contextlib.suppress(Exception):
            imports(c)
            files = [] if c.model.random_init else sorted(folder(c).glob("*.safetensors"))  # else drawn on the device
            for file in files:
                read(file)
            if files and fits(files):
                from .model import build

                # Should the GPU not calculate in bfloat16, the model is built anew at the start.
                self.built = build(c, self.device, narrow=self.device.type == "cuda")
        with contextlib.suppress(Exception):
            compiler(c)

    def room(self) -> bool:
        """Whether the device, with inference still starting on it, has memory for the model that was built. Now it may
        be touched."""
        import torch

        if self.device.type != "cuda":
            return True
        if self.built is None:
            return False  # how large it is would be seen only there
        size = sum(p.numel() * p.element_size() for p in self.built.model.parameters())
        return size + LATER <= torch.cuda.mem_get_info(self.device)[0]

    def take(self) -> Built | None:
        """The model, once: nothing is kept of it here."""
        built, self.built = self.built, None
        return built


def fits(files: list[Path]) -> bool:
    """Whether half of what is left of the host's memory holds the model, once for each rank on it, be its files of 16
    bits and its weights of 32: inference loads at the same time, and needs some, too."""
    ranks = int(os.environ.get("LOCAL_WORLD_SIZE", 1))
    return 2 * 2 * ranks * sum(f.stat().st_size for f in files) <= host.available()


def imports(c: Config) -> None:
    """The model's code."""
    from transformers import AutoConfig, AutoModelForCausalLM

    common = {"revision": c.model.revision, "trust_remote_code": c.model.trust_remote_code}
    config = AutoConfig.from_pretrained(c.model.path, **common)
    if type(config) in AutoModelForCausalLM._model_mapping:
        _ = AutoModelForCausalLM._model_mapping[type(config)]  # imports it
    if c.lora.rank:
        import peft  # noqa: F401


def compiler(c: Config) -> None:
    """Imports torch's compiler, starts its processes and makes keys of its cache, where the model may be compiled."""
    import torch

    device = torch.device("cuda" if torch.version.cuda else "cpu")
    if c.model.compile is False or (c.model.compile is None and compiled.unavailable(device)):
        return
    import torch._dynamo
    import torch._inductor.compile_fx
    from torch._inductor.async_compile import AsyncCompile

    AsyncCompile.warm_pool()
    # Hashes of all files of torch and triton, half a second. A release that has them elsewhere makes them when needed.
    with contextlib.suppress(ImportError, RuntimeError):
        from torch._inductor.codecache import torch_key
        from torch._inductor.runtime.triton_compat import triton_key

        torch_key(), triton_key()


def folder(c: Config) -> Path:
    """Where the model's files are; those of a hub are fetched."""
    if os.path.isdir(c.model.path):
        return Path(c.model.path)
    from huggingface_hub import snapshot_download

    return Path(snapshot_download(c.model.path, revision=c.model.revision, allow_patterns=["*.safetensors", "*.json"]))


def read(file: Path) -> None:
    """Into the page cache: nothing to give back, and nothing that would have to be of the right precision."""
    with open(file, "rb", buffering=0) as f:
        buffer = bytearray(CHUNK)
        while f.readinto(buffer):
            pass
