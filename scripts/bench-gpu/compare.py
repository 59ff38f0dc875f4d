"""Time the whole GRPO loop of recipe beside TRL's on one GPU of this machine, in one call.

usage: compare.py --recipe BIN --scores BIN --tokenizer DIR --out DIR [--python PYTHON] [--gpu N] [--steps N]
[--only CASE,…] [--limit S]

Every case does the same work: random weights in Qwen2.5-1.5B's shape, 16 prompts × 8 completions of at most 1,024
tokens a step, random scores, no KL term, vLLM on the same GPU at 0.4 of its memory. Cases run one after the other, each
in processes of its own. Of each is kept: seconds from the command to the end of step 1, seconds of a step (median of
those after the second), the GPU's peak memory. DIR/result.json holds everything, with the machine's description; the
table is printed.

PYTHON needs torch, transformers, peft, vllm and trl. Programs: `make bench-gpu` builds them and calls this one.
"""

import argparse
import json
import os
import platform
import shutil
import signal
import statistics
import subprocess
import sys
import threading
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent

#: What users set who know what there is to set; the defaults are the cases without a suffix.
TUNED = {"compile": True, "gradient_checkpointing": False, "row_tokens": 16384, "api_server_count": 4}
OVERLAP = {"in_flight": "keep", "ahead": 2}
CASES = {
    "recipe lora": ("recipe", {"lora_rank": 64}),
    "recipe lora warm": ("recipe", {"lora_rank": 64}),  # to be named after "recipe lora": finds its caches
    "recipe lora 16 groups": ("recipe", {"lora_rank": 64, "concurrency": 16}),  # a batch at once instead of two
    "recipe lora token events": ("recipe", {"lora_rank": 64, "stream_interval": 1}),
    "recipe lora tuned": ("recipe", {"lora_rank": 64, **TUNED, **OVERLAP}),
    "recipe full": ("recipe", {"lora_rank": 0}),
    "recipe full tuned": ("recipe", {"lora_rank": 0, **TUNED, **OVERLAP}),
    "recipe with trl lora": ("recipe", {"lora_rank": 64, "trainer": "trl"}),
    "trl lora": ("trl", {"lora_rank": 64, "dtype": "bfloat16"}),
    "trl lora tuned": (
        "trl",
        {"lora_rank": 64, "dtype": "bfloat16", "micro_batch": 16, "gradient_checkpointing": False},
    ),
    "trl full": ("trl", {"lora_rank": 0, "dtype": "float32"}),
}


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--recipe", type=Path, required=True, help="the recipe program")
    parser.add_argument("--scores", type=Path, required=True, help="the environment plugin built from scores/")
    parser.add_argument("--tokenizer", required=True, help="folder or hub name of a model whose tokenizer is used")
    parser.add_argument("--out", type=Path, required=True, help="empty or new folder for logs and result.json")
    parser.add_argument("--python", default=sys.executable, help="interpreter with torch, vllm, peft and trl")
    parser.add_argument("--gpu", type=int, default=0, help="which GPU, by its number")
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--prompts", type=int, default=16)
    parser.add_argument("--group-size", type=int, default=8)
    parser.add_argument("--max-tokens", type=int, default=1024)
    parser.add_argument("--memory", type=float, default=0.4, help="vLLM's share of the GPU's memory")
    parser.add_argument("--only", default="", help="cases to run, comma-separated; default: all")
    parser.add_argument("--limit", type=float, default=600, help="seconds that one case may take")
    chosen = parser.parse_args()
    chosen.cases = [c.strip() for c in chosen.only.split(",") if c.strip()] or list(CASES)
    unknown = [c for c in chosen.cases if c not in CASES]
    if unknown:
        parser.error(f"unknown case {unknown[0]!r}; there are: {', '.join(CASES)}")
    return chosen


def gpu(number: int) -> dict[str, str]:
    names = ["name", "memory.total", "driver_version", "power.limit"]
    query = ["nvidia-smi", "-i", str(number), f"--query-gpu={','.join(names)}", "--format=csv,noheader"]
    try:
        line = subprocess.run(query, capture_output=True, text=True, check=True, timeout=30).stdout
    except (OSError, subprocess.SubprocessError) as error:
        sys.exit(f"no NVIDIA GPU was found: nvidia-smi: {error}")
    return dict(zip(names, (value.strip() for value in line.split(",")), strict=True))


def machine(options: argparse.Namespace) -> dict[str, object]:
    code = "import importlib.metadata as m, json\n" + (
        "print(json.dumps({n: m.version(n) for n in ('torch', 'transformers', 'vllm', 'trl', 'peft')}))"
    )
    versions = subprocess.run([options.python, "-c", code], capture_output=True, text=True, timeout=300, check=False)
    if versions.returncode:
        sys.exit(f"{options.python} lacks a package: {versions.stderr.strip().splitlines()[-1]}")
    return {
        "gpu": gpu(options.gpu),
        "cores": os.cpu_count(),
        "system": platform.platform(),
        "packages": json.loads(versions.stdout.strip().splitlines()[-1]),
        "recipe": subprocess.run(
            [options.recipe, "version"], capture_output=True, text=True, check=True
        ).stdout.strip(),
        "command": sys.argv,
    }


class Memory(threading.Thread):
    """The greatest memory in use on a GPU, in MiB, sampled twice a second."""

    def __init__(self, gpu: int) -> None:
        super().__init__(daemon=True)
        self.gpu, self.peak = gpu, 0
        self.over = threading.Event()

    def run(self) -> None:
        query = ["nvidia-smi", "-i", str(self.gpu), "--query-gpu=memory.used", "--format=csv,noheader,nounits"]
        while not self.over.wait(0.5):
            answer = subprocess.run(query, capture_output=True, text=True, check=False)
            if answer.returncode == 0:
                self.peak = max(self.peak, int(answer.stdout))


def recipe_command(options: argparse.Namespace, settings: dict[str, object], folder: Path) -> list[str]:
    shutil.copy(HERE / "loop.hcl", folder)
    (folder / "settings.hcl").write_text(f'dev_overrides {{\n  scores = "{options.scores.resolve()}"\n}}\n')
    names = ("PYTHONPATH", "HF_HUB_OFFLINE", "VLLM_USE_FLASHINFER_SAMPLER", "VLLM_WORKER_MULTIPROC_METHOD")
    passed = {n: os.environ[n] for n in names if n in os.environ}
    variables = {**settings, "python": options.python, "device": str(options.gpu), "environment": json.dumps(passed)}
    command = [str(options.recipe.resolve()), "apply", "-y", "--json", "loop.hcl"]
    for name, value in variables.items():
        text = value if isinstance(value, str) else json.dumps(value)
        command += ["--var", f"{name}={text}"]
    return command


def trl_command(options: argparse.Namespace, settings: dict[str, object], folder: Path) -> list[str]:
    (folder / "settings.json").write_text(json.dumps(settings))
    return [options.python, str(HERE / "trl_loop.py"), "settings.json"]


def steps_of(kind: str, line: str) -> tuple[int | None, dict[str, float]]:
    """The step that this line says has ended, and metrics in it."""
    try:
        event = json.loads(line)
    except ValueError:
        return None, {}
    if not isinstance(event, dict):
        return None, {}
    if kind == "trl":
        return event.get("step"), event.get("metrics", {})
    if str(event.get("address", "")).startswith("trainer."):
        if event.get("type") == "progress" and event.get("step", 0) > 0:
            return event["step"], {}
        if event.get("type") == "metrics":
            return None, event.get("metrics", {})
    return None, {}


def run(options: argparse.Namespace, case: str, model: Path) -> dict[str, object]:
    kind, own = CASES[case]
    folder = options.out / case.replace(" ", "-")
    folder.mkdir(parents=True)
    settings = {
        "model": str(model),
        "steps": options.steps,
        "prompts": options.prompts,
        "group_size": options.group_size,
        "max_tokens": options.max_tokens,
        "memory": options.memory,
        **own,
    }
    command = (recipe_command if kind == "recipe" else trl_command)(options, settings, folder)
    environment = {**os.environ, "RECIPE_CONFIG": str(folder.resolve() / "settings.hcl"), "PYTHONUNBUFFERED": "1"}
    if kind == "trl":
        environment["CUDA_VISIBLE_DEVICES"] = str(options.gpu)
    memory, ends, metrics = Memory(options.gpu), {}, []
    memory.start()
    began = time.monotonic()
    with (folder / "stdout").open("w") as log, (folder / "stderr").open("w") as errors:
        process = subprocess.Popen(
            command,
            cwd=folder,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            start_new_session=True,
        )
        deadline = threading.Timer(options.limit, end, [process])
        deadline.start()
        for line in process.stdout:
            log.write(line)
            step, numbers = steps_of(kind, line)
            if step is not None:
                ends.setdefault(step, time.monotonic() - began)
            if numbers:
                metrics.append(numbers)
        status = process.wait()
        deadline.cancel()
        if status and kind == "recipe":  # whatever it left on the GPU would be in the next case's way
            subprocess.run(
                [command[0], "destroy", "-y"], cwd=folder, env=environment, stdout=errors, stderr=errors, check=False
            )
    memory.over.set()
    memory.join()
    times = [ends[s] for s in sorted(ends)]
    steps = [b - a for a, b in zip(times, times[1:], strict=False)][1:]
    return {
        "case": case,
        "settings": own,
        "status": status,
        "seconds": time.monotonic() - began,
        "first_step_s": times[0] if times else None,
        "step_s": statistics.median(steps) if steps else None,
        "steps_s": steps,
        "peak_mib": memory.peak,
        "metrics": metrics,
    }


def end(process: subprocess.Popen[str]) -> None:
    """Ask for an orderly end, which leaves nothing on the GPU, and insist after a minute."""
    os.killpg(process.pid, signal.SIGINT)
    try:
        process.wait(60)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)


def table(results: list[dict[str, object]]) -> str:
    lines = ["| case | exit | command to end of step 1, s | a step, s | peak, GiB |", "|---|---|---|---|---|"]
    for r in results:
        first, step = (f"{v:.1f}" if v is not None else "–" for v in (r["first_step_s"], r["step_s"]))
        lines.append(f"| {r['case']} | {r['status']} | {first} | {step} | {r['peak_mib'] / 1024:.1f} |")
    return "\n".join(lines)


def main() -> int:
    options = arguments()
    options.out.mkdir(parents=True, exist_ok=True)
    options.out = options.out.resolve()
    about = machine(options)
    model = options.out / "model"
    if not model.exists():
        subprocess.run([options.python, HERE / "model.py", options.tokenizer, model], check=True)
    results: list[dict[str, object]] = []
    for case in options.cases:
        results.append(run(options, case, model))
        (options.out / "result.json").write_text(json.dumps({"machine": about, "results": results}, indent=1))
        print(table(results[-1:]).splitlines()[-1], file=sys.stderr, flush=True)
    print(table(results))
    return max(1 if r["status"] else 0 for r in results)


if __name__ == "__main__":
    sys.exit(main())
