"""How far the log-probabilities of a server in bfloat16 are from the trainer's, for right and for wrong weights.

usage: tolerance.py --model DIR --out FILE [--steps N] [--rank N] [--learning-rate X] [--memory SHARE]

The worker trains the model on made-up scores; after each step vLLM, in this process and in bfloat16, gets the weights,
and both sides say the log-probabilities of fixed texts. FILE keeps them all: "right" of the step's own weights, and of
the same step the trainer's numbers beside what vLLM said before it had them ("step before"), of the weights of the
start ("start"), of all but the last layer's ("one layer not loaded"), of a layer with rows in another order
("scrambled").

PYTHONPATH needs sdk/python/src and plugins/grpo; Python needs torch, transformers, peft and vllm.
"""

import argparse
import json
import math
import os
import sys
import time
from pathlib import Path

TEXTS = {  # the first is plugins/sync's
    "probe": "What is 3+4? Answer: 7. The capital of France is Paris, and water boils at one hundred degrees.",
    "list": "The days of the week are Monday, Tuesday, Wednesday, Thursday, Friday, Saturday and Sunday.",
    "story": "Once upon a time there was a little girl who lived in a small house at the edge of the forest.",
    "sum": "State the final answer to the following arithmetic problem: 98 + 93 = 191. And 17 - 9 = 8.",
}
PROBE_LENGTH = 32


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--rank", type=int, default=0, help="of an adapter; 0: all weights")
    parser.add_argument("--learning-rate", type=float, default=2e-5)
    parser.add_argument("--memory", type=float, default=0.2, help="vLLM's share of the GPU's memory")
    return parser.parse_args()


def stepper(options: argparse.Namespace):  # noqa: ANN201
    from recipe_sdk import fields
    from recipe_sdk.ranks import Ranks
    from worker import config, model, optim
    from worker.memory import Memory
    from worker.step import Stepper

    c = config.from_dict(fields.merge({
        "model": {"path": str(options.model), "compile": False}, "kl": {"coefficient": 0.0},
        "data": {"url": "http://unused"}, "optimizer": {"learning_rate": options.learning_rate, "weight_decay": 0.0},
        "correction": {"mismatch_action": "warn"},
    }, {"lora": {"rank": options.rank, "alpha": 32}} if options.rank else {}))  # fmt: skip
    ranks = Ranks(model.device_of(c))
    policy, _ = model.load_policy(c, ranks.device)
    reference = model.Reference(c, policy, ranks.device)
    return Stepper(c, policy, reference, optim.build(c, policy.parameters()), ranks, Memory())


def batch(tokenizer, step: int):  # noqa: ANN001, ANN201
    """Groups of 8 continuations of text, with random scores."""
    import torch
    from recipe_sdk.groups import ReadOptions, read_group
    from worker import batch as batches

    g = torch.Generator().manual_seed(step)
    text = tokenizer.encode(Path(__file__).read_text(encoding="utf-8") + (__doc__ or ""), add_special_tokens=False)
    groups = []
    for _ in range(8):
        starts = torch.randint(0, len(text) - 64, (8,), generator=g).tolist()
        tokens = [text[a : a + 64] for a in starts]
        groups.append(read_group({
            "tokens": tokens, "masks": [[-100] * 16 + t[16:] for t in tokens],
            "scores": torch.randn(8, generator=g).tolist(),
            "inference_logprobs": [[1.0] * 16 + [-3.0] * 48 for _ in tokens],
        }, ReadOptions()))  # fmt: skip
    return batches.build(groups)


def trained(s, ids: list[int]) -> list[float]:  # noqa: ANN001
    """The trainer's log-probabilities, as Trainer.logprobs calculates them."""
    import torch
    from worker import batch

    row = batch.whole_row(torch.tensor(ids)).to(s.ranks.device)
    s.policy.eval()
    with torch.no_grad():
        return s.policy(row).lp.double().tolist()


def main() -> int:
    options = arguments()
    os.environ.setdefault("VLLM_ENABLE_V1_MULTIPROCESSING", "0")  # the engine in this process: its model is at hand
    import torch
    import vllm
    from transformers import AutoTokenizer
    from worker import metrics, weights

    began = time.monotonic()
    tokenizer = AutoTokenizer.from_pretrained(options.model)
    ids = {name: tokenizer.encode(text, add_special_tokens=False)[:PROBE_LENGTH] for name, text in TEXTS.items()}
    engine = vllm.LLM(
        str(options.model), dtype="bfloat16", enforce_eager=True, gpu_memory_utilization=options.memory,
        max_model_len=256, enable_prefix_caching=False, logprobs_mode="processed_logprobs",
    )  # fmt: skip
    served_model = engine.llm_engine.model_executor.driver_worker.worker.model_runner.model
    s = stepper(options)

    def load(kept=lambda name: True, scrambled: str = "") -> None:  # noqa: ANN001
        """Weights of these names; in the one that is scrambled each row is where the next belongs."""
        named = ((n, v.roll(1, 0) if n == scrambled else v) for n, v in weights.merged(s.policy))
        served_model.load_weights((n, v) for n, v in named if kept(n))
        torch.cuda.synchronize()

    def served() -> dict[str, list[float]]:
        ask = vllm.SamplingParams(max_tokens=1, temperature=0, prompt_logprobs=0)
        out = {}
        for name, tokens in ids.items():
            answer = engine.generate([{"prompt_token_ids": tokens}], ask, use_tqdm=False)[0].prompt_logprobs
            out[name] = [at[tokens[i + 1]].logprob for i, at in enumerate(answer[1:])]
        return out

    last = max(int(n.split(".layers.")[1].split(".")[0]) for n, _ in weights.merged(s.policy) if ".layers." in n)
    found: dict[str, object] = {
        "model": str(options.model), "rank": options.rank, "learning_rate": options.learning_rate,
        "gpu": torch.cuda.get_device_name(), "vllm": vllm.__version__, "torch": torch.__version__,
        "weights": sorted({str(p.dtype) for p in s.policy.parameters()}), "steps": [],
    }  # fmt: skip
    mixed = next(n for n, _ in weights.merged(s.policy) if n.endswith(f".layers.{last // 2}.mlp.down_proj.weight"))
    load()
    start = before = served()
    for step in range(options.steps):
        s.train(batch(tokenizer, step), step, metrics.Clock(s.ranks.device))
        ours = {name: trained(s, tokens) for name, tokens in ids.items()}
        load(lambda n: f".layers.{last}." not in n)
        partly = served()
        load(scrambled=mixed)
        scrambled = served()
        load()
        right = served()
        found["steps"].append({
            "trainer": ours, "right": right, "step before": before, "start": start, "one layer not loaded": partly,
            "scrambled": scrambled,
        })  # fmt: skip
        before = right
        found["seconds"] = time.monotonic() - began
        options.out.write_text(json.dumps(found))
    print(table(found))
    return 0


def table(found: dict) -> str:
    """Of each kind of weights: the smallest, median and largest over steps and texts of three statistics of the
    differences."""
    lines = ["| served | largest: min, median, max | root mean square | mean |", "|---|---|---|---|"]
    for kind in ("right", "step before", "start", "one layer not loaded", "scrambled"):
        rows = []
        for step in found["steps"]:
            for name, ours in step["trainer"].items():
                d = [abs(a - b) for a, b in zip(ours, step[kind][name], strict=True)]
                rows.append((max(d), math.sqrt(sum(x * x for x in d) / len(d)), sum(d) / len(d)))
        cells = []
        for column in zip(*rows, strict=True):
            c = sorted(column)
            cells.append(f"{c[0]:.4f}, {c[len(c) // 2]:.4f}, {c[-1]:.4f}")
        lines.append(f"| {kind} | {' | '.join(cells)} |")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
