"""quantized.py MODEL: weights that a trainer publishes to the real vLLM, whose layers are in float8.

vLLM loads MODEL, a folder with a checkpoint, and makes float8 of its layers. Then come other weights, once by vLLM's
own reload and once by recipe's copy out of the trainer's memory, through each place of what vLLM has made. Both have to
leave the same model, bit for bit and in the same memory. Writes what was compared as JSON.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from unittest import mock

os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"  # the model is in this process

import recipe_pull
import torch
from recipe_sdk import ipc
from transformers import AutoModelForCausalLM
from vllm import LLM


def changed(path: str) -> torch.nn.Module:
    """The model with other weights."""
    policy = AutoModelForCausalLM.from_pretrained(path, dtype=torch.bfloat16)
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for p in policy.parameters():
            p.mul_(1 + 0.1 * torch.randn(p.shape, generator=generator))
    return policy


def seen(model: torch.nn.Module, loads: Callable[[], None]) -> dict[str, str]:
    """By layer, the class of the weight that vLLM quantizes while new ones are loaded: what it compiles is for one."""
    classes = {}
    names = {id(getattr(m, "quant_method", None)): n for n, m in model.named_modules() if recipe_pull.quantized(m)}
    method = next(type(m.quant_method) for m in model.modules() if recipe_pull.quantized(m))
    process = method.process_weights_after_loading

    def noting(self: object, layer: torch.nn.Module) -> None:
        classes[names[id(self)]] = type(layer.weight).__name__
        process(self, layer)

    with mock.patch.object(method, "process_weights_after_loading", noting):
        loads()
    return classes


def compare(worker: object, policy: torch.nn.Module) -> dict:
    model = worker.model_runner.get_model()  # type: ignore[attr-defined]
    parameters = dict(model.named_parameters())
    places = {n: p.data_ptr() for n, p in parameters.items()}
    first = {n: p.clone() for n, p in parameters.items()}
    by_reload = seen(model, lambda: worker.reload_weights(weights_iterator=policy.named_parameters()))  # type: ignore[attr-defined]
    reloaded = {n: p.clone() for n, p in parameters.items()}
    for p in parameters.values():
        p.data.view(torch.uint8).zero_()
    shared = ipc.Shared()
    answer = shared.refresh(policy.named_parameters, torch.device("cpu"), 1, None, True)
    # vLLM's layers of a CPU have no packed copies but for the output head, which is not compared
    puller, told = recipe_pull.Puller(model, json.loads(json.dumps(answer["handles"]))), {}
    by_copy = seen(model, lambda: told.update(puller.pull(1, lambda _: None)))
    same = [n for n, p in parameters.items() if torch.equal(bits(p), bits(reloaded[n]))]
    return {
        "layers": len(by_reload),
        "classes": {n: [kind, by_copy.get(n)] for n, kind in by_reload.items() if by_copy.get(n) != kind},
        "path": told["path"], "why": told["why"], "parameters": len(parameters),
        "float8": sum(p.dtype == torch.float8_e4m3fn for p in parameters.values()),
        "changed": sum(not torch.equal(bits(p), bits(first[n])) for n, p in reloaded.items()),
        "differ": sorted(set(parameters) - set(same)),
        "moved": [n for n, p in model.named_parameters() if p.data_ptr() != places[n]],
    }  # fmt: skip


def bits(p: torch.Tensor) -> torch.Tensor:
    return p.detach().contiguous().view(torch.uint8)


def main() -> None:
    path = sys.argv[1]
    served = LLM(
        path, quantization="fp8_per_channel", dtype="bfloat16", max_model_len=128, max_num_seqs=4,
        kv_cache_memory_bytes=1 << 26, enforce_eager=True,
    )  # fmt: skip
    policy = changed(path)
    found = served.llm_engine.model_executor.collective_rpc(lambda worker: compare(worker, policy))
    json.dump(found, sys.stdout)


if __name__ == "__main__":
    main()
