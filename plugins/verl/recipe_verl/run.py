"""One life of the trainer: verl's engine, the bridge, and the loop between them."""

from __future__ import annotations

import importlib.util
import os
import warnings
from datetime import timedelta
from functools import partial
from typing import Any

import torch
from hydra.errors import InstantiationException
from recipe_sdk import Bridge, dtypes, leave, products, settings, work
from recipe_sdk.errors import CheckpointError, WorkerError
from recipe_sdk.ranks import alone, default_device, join

from . import cpu, logprob
from .packing import mixed
from .settings import merged, named


def run(file: str, given: dict[str, Any]) -> None:
    """Trains until the run ends, and leaves the process with its exit status."""
    block = settings.from_dict({k: v for k, v in given.items() if k != "backend"}, settings.Settings)
    cuda = torch.cuda.is_available()
    timeout = timedelta(seconds=block.collective_timeout)
    backend = "cpu:gloo,cuda:nccl" if cuda else "gloo"
    if cuda:
        torch.cuda.set_device(default_device())
    if "WORLD_SIZE" in os.environ:
        join(backend, timeout)
    else:
        alone(backend, timeout)
    leave(work(block, partial(train, given["backend"]), imports))


def imports() -> None:
    """What takes seconds and needs no GPU."""
    cpu.install()
    with warnings.catch_warnings():  # of verl's other engines, whose packages nobody asked for
        warnings.filterwarnings("ignore", message=".* engine is not available")
        import verl.workers.engine  # noqa: F401
        from verl.models.transformers import monkey_patch
    logprob.install()
    # Where TRL is installed, verl patches TRL's model with a value head. Newer TRLs have none, so the import fails; no
    # worker here has a value head.
    monkey_patch.is_trl_available = lambda: False


def train(backend: str, bridge: Bridge[Any]) -> None:
    """Builds the engine, resumes, and trains each batch."""
    imports()
    from transformers import PreTrainedConfig

    from .learner import CHECKS, Learner

    flash = bridge.device.type == "cuda" and importlib.util.find_spec("flash_attn") is not None
    apart = backend != "megatron" and mixed(PreTrainedConfig.get_config_dict(bridge.block.model.path)[0])
    if bridge.device.type == "cuda" and not flash:
        bridge.events.emit("decided", what="attention", reason="flash-attn is not installed: PyTorch's attention over "
                           "padded rows. With flash-attn rows are packed, which is faster")  # fmt: skip
    elif flash and apart:
        bridge.events.emit("decided", what="rows", reason="padded: this model's layers pass on what they have read, "
                           "and verl does not tell them where a packed row's sequences begin")  # fmt: skip
    try:
        learner = Learner(merged(
            bridge.settings, bridge.block, backend, cuda=bridge.device.type == "cuda", flash=flash, apart=apart
        ), bridge)  # fmt: skip
    except InstantiationException as e:  # of one of verl's dataclasses
        _, _, key = str(e).rpartition("full_key: ")
        setting = named(str(e.__cause__), bridge.settings, key)
        raise WorkerError(f"verl refuses its configuration: {e}", CHECKS, "config", setting) from e
    model = getattr(learner.engine, "module", None)
    if isinstance(model, torch.nn.Module):  # Megatron's engine has a list
        products.check(model, bridge.device, learner.computes)
    torch.manual_seed(bridge.block.seed + bridge.rank)
    if found := bridge.resume():
        if found.state["world"] != bridge.world:
            raise CheckpointError(
                f"{found.path} was written by {found.state['world']} processes, and this run has {bridge.world}: "
                "verl's checkpoints are shards",
                [f"Give the block {found.state['world']} GPUs again.",
                 f"Or start anew from the weights: model = \"{found.path}\" in a new run."],
            )  # fmt: skip
        learner.load(found.path, found.state)
    bridge.attach(
        named=learner.named, logprobs=learner.logprobs, save=learner.save, state=learner.state, tied=learner.tied(),
        sleep=partial(learner.move, "cpu"), wake=partial(learner.move, bridge.device.type), trained=learner.dtype,
        reading=learner.reading, summary={"backend": backend, "compute_dtype": dtypes.name(learner.computes)},
    )  # fmt: skip
    for batch in bridge.batches():
        metrics = learner.step(batch)
        if metrics is None:
            bridge.skipped("rollout_correction rejected every token of it")
        else:
            bridge.stepped(metrics, **learner.tokens)
