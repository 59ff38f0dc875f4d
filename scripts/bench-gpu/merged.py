"""How fast adapters in bfloat16 teach the weights that are served: merged while they train, or beside the weights.

usage: merged.py --model DIR [--learning-rates 3e-4,3e-5] [--seeds 0,1] [--steps N] [--device auto|cpu] [--out FILE]

SmolLM2-135M (scripts/model.sh) learns sums of two numbers of two digits from right answers (loss weighted_sft, 32 a
step, LoRA of rank 64). Every four steps the log-probability of 64 held-out answers is taken, of a plain model with the
weights that inference would be given: what rounding them loses counts. Prints a JSON line a case. Without a GPU a case
takes a minute and a half on one core. The worker and the SDK are found by PYTHONPATH=sdk/python/src:plugins/grpo.
"""

from __future__ import annotations

import argparse
import copy
import json
import random
import time
from pathlib import Path


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--learning-rates", default="3e-4,3e-5")
    parser.add_argument("--seeds", default="0")
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--out", type=Path)
    return parser.parse_args()


def sums(tokenizer, seed: int, n: int):
    """A batch of n questions with their right answers, of which only the answers are trained."""
    from recipe_sdk.groups import ReadOptions, read_group
    from worker import batch

    draw, groups = random.Random(seed), []
    for _ in range(n):
        a, b = draw.randint(10, 99), draw.randint(10, 99)
        question, answer = tokenizer(f"{a} + {b} =")["input_ids"], tokenizer(f" {a + b}\n")["input_ids"]
        tokens = question + answer
        groups.append(read_group({
            "tokens": [tokens], "masks": [[-100] * len(question) + answer], "scores": [1.0],
            "advantages": [[1.0] * len(tokens)],
        }, ReadOptions()))  # fmt: skip
    return batch.build(groups)


def steppers(options: argparse.Namespace, rate: float, seed: int, merged: bool):
    """The worker's own for the adapters, and one for a plain model that is given the weights."""
    from recipe_sdk.ranks import Ranks
    from worker import config, model, optim
    from worker.memory import Memory
    from worker.step import Stepper

    c = config.from_dict({
        "model": {"path": str(options.model), "dtype": "bfloat16", "device": options.device, "row_tokens": 1024},
        "lora": {"rank": 64, "alpha": 32, "merged": merged}, "kl": {"coefficient": 0.0},
        "optimizer": {"learning_rate": rate, "weight_decay": 0.0}, "loss": {"name": "weighted_sft"},
        "advantages": {"clip": [0.0, 1.0]}, "seed": seed, "steps": options.steps, "data": {"url": "http://unused"},
    })  # fmt: skip
    ranks = Ranks(model.device_of(c))
    found = []
    for lora in (c.lora, type(c.lora)()):
        own = copy.copy(c)
        object.__setattr__(own, "lora", lora)
        policy, _ = model.load_policy(own, ranks.device)
        reference = model.Reference(own, policy, ranks.device)
        found.append(Stepper(own, policy, reference, optim.build(own, policy.parameters()), ranks, Memory()))
    return found


def run(options: argparse.Namespace, rate: float, seed: int, merged: bool) -> dict:
    """One case: (step, log-probability of a held-out token) over time."""
    import torch
    from transformers import AutoTokenizer
    from worker import metrics, weights

    tokenizer = AutoTokenizer.from_pretrained(options.model)
    held_out = sums(tokenizer, 10_000, 64)
    adapted, plain = steppers(options, rate, seed, merged)

    def served() -> float:
        published = dict(weights.merged(adapted.policy))
        with torch.no_grad():
            for name, p in plain.policy.causal.named_parameters():
                p.copy_(published[name])
        return round(float(plain.scores(plain.policy, held_out)["lp"].mean()), 4)

    began, curve = time.perf_counter(), [(0, served())]
    for step in range(options.steps):
        b = sums(tokenizer, seed * 1000 + step, 32)
        adapted.train(b, step, metrics.Clock(adapted.ranks.device))
        if step % 4 == 3:
            curve.append((step + 1, served()))
    return {"learning_rate": rate, "seed": seed, "merged": merged, "curve": curve,
            "s": round(time.perf_counter() - began, 1)}  # fmt: skip


def main() -> None:
    options = arguments()
    results = []
    for rate in options.learning_rates.split(","):
        for seed in options.seeds.split(","):
            for merged in (True, False):
                results.append(run(options, float(rate), int(seed), merged))
                print(json.dumps(results[-1]), flush=True)
    if options.out:
        options.out.parent.mkdir(parents=True, exist_ok=True)
        options.out.write_text(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
