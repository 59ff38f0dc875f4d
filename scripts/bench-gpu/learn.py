"""Time how SmolLM2 learns a task of reasoning-gym on one GPU of this machine: recipe beside TRL, to the same accuracy.

usage: learn.py --recipe BIN --model DIR --out DIR [--python PYTHON] [--gpu N] [--only CASE,…] [--seeds N,…]

Every case has the same questions, batch, learning rate and vLLM's share of the GPU; what else could be set has its
default. Every few seconds (recipe: `recipe evaluate`, beside training) or steps (TRL) the held-out questions are
answered greedily. A case ends when --target of them are right, or after --steps or --limit. DIR/result.json holds the
curves, with the machine's description; a table is printed.

PYTHON needs torch, transformers, peft, vllm, trl and reasoning-gym.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import threading
import time
from pathlib import Path

import compare

HERE = Path(__file__).resolve().parent
BLOCK = "environment.reasoning_gym.task"

TASK = {
    "dataset": "chain_sum",
    "dataset_config": {"min_terms": 2, "max_terms": 2, "min_digits": 1, "max_digits": 1},
    "prompt_template": "{question}",
    "answer_pattern": r"^\s*(-?\d+)",
    "max_tokens": 8,
}
CASES = {
    "recipe full": ("recipe", {"lora_rank": 0, "learning_rate": 2e-5}),
    # What TRL does: float32 weights, 16-bit arithmetic and serving. Rounding a model as small as this moves single
    # log-probabilities by more than the check of an update allows.
    "recipe full bf16": ("recipe", {"lora_rank": 0, "learning_rate": 2e-5, "dtype": "bfloat16", "tolerance": 2}),
    **{
        f"recipe full {name}": (
            "recipe",
            {"lora_rank": 0, "learning_rate": 2e-5, "dtype": "bfloat16", "tolerance": 2, "float8": float8},
        )
        for name, float8 in (("back8", "backward"), ("float8", "all"))
    },
    # Rollouts in float8: vLLM serves its linear layers in 8 bits, made anew from each version of the weights.
    "recipe full rollout8": (
        "recipe",
        {
            "lora_rank": 0,
            "learning_rate": 2e-5,
            "dtype": "bfloat16",
            "tolerance": 2,
            "quantization": "fp8_per_channel",
        },
    ),
    "recipe lora": ("recipe", {"lora_rank": 64, "learning_rate": 3e-4}),
    "recipe lora back8": (
        "recipe",
        {"lora_rank": 64, "learning_rate": 3e-4, "dtype": "bfloat16", "float8": "backward"},
    ),
    "recipe lora float8": ("recipe", {"lora_rank": 64, "learning_rate": 3e-4, "dtype": "bfloat16", "float8": "all"}),
    "recipe lora bf16": ("recipe", {"lora_rank": 64, "learning_rate": 3e-4, "dtype": "bfloat16"}),
    # Beside the weights, which vLLM is given rounded: the check needs the tolerance that all weights need.
    "recipe lora bf16 apart": (
        "recipe",
        {"lora_rank": 64, "learning_rate": 3e-4, "dtype": "bfloat16", "lora_merged": False, "tolerance": 2},
    ),
    # 64 completions a forward pass where TRL's default is 8: several times as fast for so short ones.
    "trl full": ("trl", {"lora_rank": 0, "learning_rate": 2e-5, "micro_batch": 64}),
    "trl lora": ("trl", {"lora_rank": 64, "learning_rate": 3e-4, "micro_batch": 64}),
}


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--recipe", type=Path, required=True, help="the recipe program")
    parser.add_argument("--model", type=Path, required=True, help="folder of SmolLM2-135M (scripts/model.sh)")
    parser.add_argument("--out", type=Path, required=True, help="empty or new folder for logs and result.json")
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--gpu", type=int, default=0, help="which GPU, by its number")
    parser.add_argument("--only", default="", help="cases to run, comma-separated; default: all")
    parser.add_argument("--seeds", default="0", help="comma-separated; each case runs once with each")
    parser.add_argument("--steps", type=int, default=100, help="at most so many")
    parser.add_argument("--prompts", type=int, default=32)
    parser.add_argument("--group-size", type=int, default=16)
    parser.add_argument("--held-out", type=int, default=64)
    parser.add_argument("--learning-rate", type=float, help="instead of the case's")
    parser.add_argument("--target", type=float, default=0.9, help="share of held-out answers that ends a case")
    parser.add_argument("--task", type=json.loads, default={}, help="JSON, over the task above")
    parser.add_argument("--memory", type=float, default=0.3, help="vLLM's share of the GPU's memory")
    parser.add_argument("--limit", type=float, default=240, help="seconds that one case may take")
    parser.add_argument("--cpu", action="store_true", help="try the program on a machine without a GPU; no TRL")
    chosen = parser.parse_args()
    chosen.cases = [c.strip() for c in chosen.only.split(",") if c.strip()] or list(CASES)
    unknown = [c for c in chosen.cases if c not in CASES]
    if unknown:
        parser.error(f"unknown case {unknown[0]!r}; there are: {', '.join(CASES)}")
    return chosen


def settings_of(options: argparse.Namespace, own: dict[str, object], seed: int) -> dict[str, object]:
    return {
        "model": str(options.model.resolve()), "steps": options.steps, "prompts": options.prompts,
        "group_size": options.group_size, "memory": options.memory, "held_out": options.held_out, "seed": seed,
        **TASK, **options.task, **own,
        **({} if options.learning_rate is None else {"learning_rate": options.learning_rate}),
    }  # fmt: skip


def recipe_command(options: argparse.Namespace, settings: dict[str, object], folder: Path) -> list[str]:
    shutil.copy(HERE / "learn.hcl", folder)
    names = ("PYTHONPATH", "HF_HUB_OFFLINE", "VLLM_USE_FLASHINFER_SAMPLER")
    passed = {n: os.environ[n] for n in names if n in os.environ}
    variables = {**settings, "python": options.python, "environment": passed}
    if not options.cpu:
        variables["device"] = str(options.gpu)
    command = [str(options.recipe.resolve()), "apply", "-y", "--json", "learn.hcl"]
    for name, value in variables.items():
        command += ["--var", f"{name}={value if isinstance(value, str) else json.dumps(value)}"]
    return command


def trl_command(options: argparse.Namespace, settings: dict[str, object], folder: Path) -> list[str]:
    more = {"target": options.target, "evaluate_every": 2}
    (folder / "settings.json").write_text(json.dumps({**settings, **more}))
    return [options.python, str(HERE / "trl_learn.py"), "settings.json"]


class Case:
    """One case: what its process says, and what became of it."""

    def __init__(self, options: argparse.Namespace, name: str, seed: int):
        self.options, self.name, self.seed = options, name, seed
        self.kind, own = CASES[name]
        self.folder = options.out / f"{name.replace(' ', '-')}-{seed}"
        self.folder.mkdir(parents=True)
        self.settings = settings_of(options, own, seed)
        make = recipe_command if self.kind == "recipe" else trl_command
        self.command = make(options, self.settings, self.folder)
        self.steps: dict[int, float] = {}
        self.curve: list[dict[str, float]] = []
        self.metrics: list[dict[str, float]] = []
        self.serving, self.over = threading.Event(), threading.Event()

    def run(self) -> dict[str, object]:
        self.began = time.monotonic()
        with (self.folder / "stdout").open("w") as log, (self.folder / "stderr").open("w") as errors:
            self.process = subprocess.Popen(
                self.command, cwd=self.folder, stdout=subprocess.PIPE, stderr=errors, text=True, start_new_session=True,
                env={**os.environ, "PYTHONUNBUFFERED": "1", **self.visible()},
            )  # fmt: skip
            deadline = threading.Timer(self.options.limit, compare.end, [self.process])
            deadline.start()
            evaluations = threading.Thread(target=self.evaluate, args=[errors])
            evaluations.start()
            for line in self.process.stdout:
                log.write(line)
                self.read(line)
            status = self.process.wait()
            seconds = time.monotonic() - self.began
            deadline.cancel()
            self.over.set()
            self.serving.set()
            evaluations.join()
            if self.kind == "recipe":  # whatever it left on the GPU would be in the next case's way
                subprocess.run(
                    [self.command[0], "destroy", "-y"], cwd=self.folder, stdout=errors, stderr=errors, check=False
                )
        reached = [at for at in self.curve if at["accuracy"] >= self.options.target]
        times = [self.steps[s] for s in sorted(self.steps)]
        return {
            "case": self.name, "seed": self.seed, "settings": self.settings, "status": status, "seconds": seconds,
            "before": self.curve[0]["accuracy"] if self.curve else None,
            "after": self.curve[-1]["accuracy"] if self.curve else None,
            "best": max((at["accuracy"] for at in self.curve), default=None),
            "reached": reached[0] if reached else None, "steps": len(self.steps),
            "first_step_s": times[0] if times else None, "last_step_s": times[-1] if times else None,
            "curve": self.curve, "metrics": self.metrics,
        }  # fmt: skip

    def visible(self) -> dict[str, str]:
        """recipe gives each process its devices; TRL takes the first that it sees."""
        return {"CUDA_VISIBLE_DEVICES": str(self.options.gpu)} if self.kind == "trl" else {}

    def since(self) -> float:
        return round(time.monotonic() - self.began, 2)

    def read(self, line: str) -> None:
        step, numbers = compare.steps_of(self.kind, line)
        if step is not None:
            self.steps.setdefault(step, self.since())
        if numbers:
            self.metrics.append(numbers)
        try:
            event = json.loads(line)
        except ValueError:
            return
        if not isinstance(event, dict):
            return
        if "accuracy" in event:
            self.curve.append({"accuracy": event["accuracy"], "version": event["version"], "s": self.since()})
        if event.get("address") == BLOCK and event.get("phase") == "ready":
            self.serving.set()

    def evaluate(self, errors) -> None:  # noqa: ANN001
        """Asks a run of recipe for its accuracy, until the target is reached or the run is over."""
        if self.kind != "recipe":
            return
        self.serving.wait()
        command = [self.command[0], "evaluate", BLOCK, "--json", "--timeout", "60s"]
        while not self.over.is_set():
            done = subprocess.run(
                command, cwd=self.folder, stdout=subprocess.PIPE, stderr=errors, text=True, check=False
            )
            if done.returncode == 0:
                found = json.loads(done.stdout)
                at = {"accuracy": found["metrics"]["score"], "version": found["policy_version"], "s": self.since()}
                self.curve.append(at)
                if at["accuracy"] >= self.options.target:
                    compare.end(self.process)
                    return
            self.over.wait(2)


def table(results: list[dict[str, object]], target: float) -> str:
    lines = [
        f"| case | seed | steps | held out, before | after | s to {target} | of them after step 1 |",
        "|---|---|---|---|---|---|---|",
    ]
    for r in results:
        at, first = r["reached"], r["first_step_s"]
        to = f"{at['s']:.0f} (version {at['version']}) | {at['s'] - first:.0f}" if at and first else "– | –"
        lines.append(f"| {r['case']} | {r['seed']} | {r['steps']} | {r['before']} | {r['after']} | {to} |")
    return "\n".join(lines)


def main() -> int:
    options = arguments()
    options.out.mkdir(parents=True, exist_ok=True)
    options.out = options.out.resolve()
    about = {} if options.cpu else compare.machine(options)
    results: list[dict[str, object]] = []
    for case in [Case(options, name, int(seed)) for seed in options.seeds.split(",") for name in options.cases]:
        results.append(case.run())
        (options.out / "result.json").write_text(json.dumps({"machine": about, "results": results}, indent=1))
        print(table(results[-1:], options.target).splitlines()[-1], file=sys.stderr, flush=True)
    print(table(results, options.target))
    return 0


if __name__ == "__main__":
    sys.exit(main())
