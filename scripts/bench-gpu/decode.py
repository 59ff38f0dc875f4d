"""How long a token takes vLLM alone, and how long new weights take it, in 16 bits and with layers in float8.

usage: decode.py [--shape 1.5B|7B|tiny] [--quantization fp8_per_channel|fp8|…] [--compile] [--tokens N]

Random weights in the shape of Qwen2.5; vLLM in this process, at half of the memory of the GPU. Prints a line of JSON:
seconds of the start, milliseconds a token by the number of sequences that decode at once, and with --quantization
seconds of three updates each, by the own reload of vLLM and by the copy of recipe, and whether both leave the same
parameters. PYTHONPATH needs plugins/vllm/extension and sdk/python/src; environment:
VLLM_ALLOW_INSECURE_SERIALIZATION=1.
"""

import argparse
import json
import os
import tempfile
import time
from collections.abc import Callable

from model import SHAPES


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shape", default="1.5B", choices=SHAPES)
    parser.add_argument("--quantization")
    parser.add_argument("--compile", action="store_true", help="with torch.compile; else CUDA graphs without it")
    parser.add_argument("--tokens", type=int, default=400)
    return parser.parse_args()


def serve(options: argparse.Namespace, folder: str):  # noqa: ANN201
    import torch
    from transformers import Qwen2Config
    from vllm import LLM

    vocabulary = 1024 if options.shape == "tiny" else 152064 if options.shape == "7B" else 151936
    Qwen2Config(
        **SHAPES[options.shape], vocab_size=vocabulary, architectures=["Qwen2ForCausalLM"], dtype="bfloat16"
    ).save_pretrained(folder)
    own = {"gpu_memory_utilization": 0.5, "max_num_seqs": 256, "max_model_len": 1280}
    if not torch.cuda.is_available():
        own = {"kv_cache_memory_bytes": 1 << 28, "max_num_seqs": 4, "max_model_len": 512, "enforce_eager": True}
    return LLM(
        folder,
        quantization=options.quantization,
        dtype="bfloat16",
        load_format="dummy",
        skip_tokenizer_init=True,
        **own,
    )


def seconds(served, sequences: int, tokens: int) -> float:  # noqa: ANN001
    from vllm import SamplingParams

    prompts = [{"prompt_token_ids": [(i * 131 + j * 17) % 1000 for j in range(128)]} for i in range(sequences)]
    began = time.perf_counter()
    served.generate(
        prompts, SamplingParams(max_tokens=tokens, ignore_eos=True, detokenize=False, logprobs=0), use_tqdm=False
    )
    return time.perf_counter() - began


def update(worker) -> dict:  # noqa: ANN001
    """Other weights into a quantized model, by both ways."""
    import recipe_pull
    import torch
    from recipe_sdk.receive.fused import fit
    from recipe_sdk.receive.puller import Puller
    from transformers import AutoConfig, AutoModelForCausalLM

    model = worker.model_runner.get_model()
    device = next(model.parameters()).device
    with torch.device(device):
        config = AutoConfig.from_pretrained(worker.model_runner.model_config.model)
        policy = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)
    weights = {n: p.detach() for n, p in policy.named_parameters()}
    targets, why = fit(model, weights, model.packed_modules_mapping, makes=recipe_pull.made)
    if targets is None:
        raise SystemExit(f"vLLM's loader has to place the weights: {why}")
    puller = Puller.__new__(Puller)  # what it copies is here
    puller.source = list(weights.values())

    def settle() -> None:
        if device.type == "cuda":
            torch.cuda.synchronize()

    @torch.no_grad()
    def timed(load: Callable[[], object]) -> list[float]:
        found = []
        for _ in range(3):
            settle()
            began = time.perf_counter()
            load()
            settle()
            found.append(round(time.perf_counter() - began, 4))
        return found

    def bits() -> list[torch.Tensor]:
        return [p.detach().contiguous().view(torch.uint8).clone() for p in model.parameters()]

    reload = timed(lambda: worker.reload_weights(weights_iterator=iter(weights.items())))
    reloaded = bits()
    for p in model.parameters():
        p.data.view(torch.uint8).zero_()
    copied = timed(lambda: puller._copy(targets))
    same = all(torch.equal(a, b) for a, b in zip(reloaded, bits(), strict=True))
    total = sum(p.numel() * p.element_size() for p in weights.values())
    return {"update_bytes": total, "reload_s": reload, "copy_s": copied, "same": same}


def main() -> None:
    options = arguments()
    os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
    if not options.compile:
        os.environ["VLLM_USE_BREAKABLE_CUDAGRAPH"] = "1"
    began = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        served = serve(options, folder)
        said = {**vars(options), "start_s": round(time.perf_counter() - began, 1), "ms_a_token": {}}
        counts = (2,) if options.shape == "tiny" else (32, 128, 256)
        seconds(served, counts[0], 8)
        for n in counts:
            start = seconds(served, n, 16)
            took = seconds(served, n, 16 + options.tokens) - start
            said["ms_a_token"][n] = round(took / options.tokens * 1e3, 3)
        if options.quantization:
            said |= served.llm_engine.model_executor.collective_rpc(update)[0]
    print(json.dumps(said))


if __name__ == "__main__":
    main()
