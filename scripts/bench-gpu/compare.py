"""Time the whole GRPO loop of recipe beside TRL's on one GPU of this machine, in one call; with --only gsm8k,
recipes/gsm8k.hcl with each engine and each trainer.

usage: compare.py --recipe BIN --scores BIN --tokenizer DIR --out DIR [--python PYTHON] [--gpu N] [--steps N]
[--inference-gpus N,… [--transport NAME] [--tensor-parallel N]] [--only CASE,…] [--limit S]
[--use NAME=PYTHON[,PYTHONPATH]]… [--add NAME=LINE]… [--ranks N] [--shape 7B] [--cpu]

Every case does the same work: random weights in the shape of Qwen2.5-1.5B (or 7B), 16 prompts × 8 completions of at
most 1,024 tokens a step, random scores, no KL term, vLLM on the same GPU at 0.4 of its memory. Cases run one after the
other, each in processes of its own. Of each is kept: seconds from the command to the end of step 1, seconds of a step
(median of those after the second), the GPU's peak memory, the trainer's metrics and those of each update of weights.
DIR/result.json holds everything, with the machine's description; the table is printed.

PYTHON needs torch, transformers, peft, vllm and trl. Programs: `make bench-gpu` builds them and calls this one.

Cases "gsm8k ENGINE TRAINER" run recipes/gsm8k.hcl as it stands but for its data set (gsm8k.py says what is changed), by
default for 11 steps; `--only gsm8k` is all eight, `--only "gsm8k sglang"` those of one engine. An engine or trainer
whose packages are elsewhere is named: `--use sglang=python3,/opt/site-sglang`; `--add 'sglang=attention_backend =
"fa3"'` adds a line to its block, `--add 'trl.config=load_in_4bit = true'` to a trainer's own settings. With --cpu they
run without a GPU on a tiny model, which tests the script itself.
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

import gsm8k

HERE = Path(__file__).resolve().parent

#: What users set who know what there is to set; the defaults are the cases without a suffix.
TUNED = {"compile": True, "gradient_checkpointing": False, "row_tokens": 16384, "api_server_count": 4}
OVERLAP = {"in_flight": "keep", "ahead": 2}
ONE = ["--distributed-executor-backend", "uni"]
CASES = {
    "recipe lora": ("recipe", {"lora_rank": 64}),
    "recipe lora warm": ("recipe", {"lora_rank": 64}),  # to be named after "recipe lora": finds its caches
    # to be named after "recipe lora": what vLLM's measuring of memory takes
    "recipe lora cache given": ("recipe", {"lora_rank": 64, "kv_cache_memory_bytes": 48 << 30}),
    "recipe lora 16 groups": ("recipe", {"lora_rank": 64, "concurrency": 16}),  # a batch at once instead of two
    "recipe lora token events": ("recipe", {"lora_rank": 64, "stream_interval": 1}),
    "recipe lora tuned": ("recipe", {"lora_rank": 64, **TUNED, **OVERLAP}),
    "recipe lora compiled": ("recipe", {"lora_rank": 64, "compiled": True}),  # vLLM's model
    "recipe lora compiled warm": ("recipe", {"lora_rank": 64, "compiled": True}),  # to be named after the one above
    "recipe lora back8": ("recipe", {"lora_rank": 64, "float8": "backward"}),
    "recipe lora float8": ("recipe", {"lora_rank": 64, "float8": "all"}),
    # to random weights every token is improbable, and the differences of those are larger than a text's
    "recipe lora served in float8": (
        "recipe",
        {"lora_rank": 64, "quantization": "fp8_per_channel", "tolerance": 2},
    ),
    "recipe lora ahead": ("recipe", {"lora_rank": 64, "ahead": 3}),  # for inference on GPUs of its own
    # with --inference-gpus 0,0: while one of two servers works on the CPU, the other decodes
    "recipe lora servers": ("recipe", {"lora_rank": 64, "memory": 0.2, "kv_cache_memory_bytes": 8 << 30}),
    "recipe lora turns": ("recipe", {"lora_rank": 64, "sleep": True}),
    # vLLM's scheduler and its model in one process, on one core
    "recipe lora one process": ("recipe", {"lora_rank": 64, "extra_args": ONE}),
    "recipe full": ("recipe", {"lora_rank": 0}),
    "recipe full tuned": ("recipe", {"lora_rank": 0, **TUNED, **OVERLAP}),
    "recipe with trl lora": ("recipe", {"lora_rank": 64, "trainer": "trl"}),
    "trl lora": ("trl", {"lora_rank": 64, "dtype": "bfloat16"}),
    "trl lora tuned": (
        "trl",
        {"lora_rank": 64, "dtype": "bfloat16", "micro_batch": 16, "gradient_checkpointing": False},
    ),
    "trl full": ("trl", {"lora_rank": 0, "dtype": "float32"}),
    **{f"gsm8k {e} {t}": ("gsm8k", {"engine": e, "trainer": t}) for e in gsm8k.ENGINES for t in gsm8k.TRAINERS},
}
#: What blocks of recipe are passed of this process's environment.
PASSED = ("PYTHONPATH", "HF_HUB_OFFLINE", "VLLM_USE_FLASHINFER_SAMPLER", "VLLM_WORKER_MULTIPROC_METHOD",
          "VLLM_USE_V2_MODEL_RUNNER", "VLLM_USE_BREAKABLE_CUDAGRAPH", "VLLM_PLUGINS", "OMP_NUM_THREADS",
          "SGLANG_IS_FLASHINFER_AVAILABLE")  # fmt: skip


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--recipe", type=Path, required=True, help="the recipe program")
    parser.add_argument("--scores", type=Path, required=True, help="the environment plugin built from scores/")
    parser.add_argument("--tokenizer", required=True, help="folder or hub name of a model whose tokenizer is used")
    parser.add_argument("--out", type=Path, required=True, help="empty or new folder for logs and result.json")
    parser.add_argument("--python", default=sys.executable, help="interpreter with torch, vllm, peft and trl")
    parser.add_argument("--gpu", type=int, default=0, help="which GPU, by its number")
    parser.add_argument("--inference-gpus", help="cases of recipe: a vLLM on each of these GPUs, comma-separated")
    parser.add_argument("--transport", help="of weights to them; default: live, into memory that both see")
    parser.add_argument("--tensor-parallel", type=int, default=1, help="of these GPUs for each vLLM")
    parser.add_argument("--steps", type=int, help="default: 6; 11 of gsm8k")
    parser.add_argument("--shape", default="1.5B", choices=["1.5B", "7B"], help="of the model, but for gsm8k")
    parser.add_argument("--prompts", type=int, default=16)
    parser.add_argument("--group-size", type=int, default=8)
    parser.add_argument("--max-tokens", type=int, default=1024)
    parser.add_argument("--memory", type=float, default=0.4, help="vLLM's share of the GPU's memory")
    parser.add_argument("--only", default="", help="cases, comma-separated, or how they begin; default: all but gsm8k")
    parser.add_argument("--use", action="append", default=[], metavar="NAME=PYTHON[,PYTHONPATH]",
                        help="gsm8k: interpreter of an engine or trainer; default: --python")  # fmt: skip
    parser.add_argument("--add", action="append", default=[], metavar="NAME=LINE",
                        help="gsm8k: a line for a block, or with NAME.config for a trainer's own settings")  # fmt: skip
    parser.add_argument("--ranks", type=int, default=1, help="GPUs of recipe's trainer, from --gpu on")
    parser.add_argument("--cpu", action="store_true", help="gsm8k: without a GPU, on a tiny model")
    parser.add_argument("--limit", type=float, default=600, help="seconds that one case may take")
    chosen = parser.parse_args()
    chosen.cases = []
    for name in (c.strip() for c in chosen.only.split(",") if c.strip()):
        found = [name] if name in CASES else [c for c in CASES if c.startswith(name + " ")]
        if not found:
            parser.error(f"unknown case {name!r}; there are: {', '.join(CASES)}")
        chosen.cases += found
    chosen.cases = chosen.cases or [c for c, (kind, _) in CASES.items() if kind != "gsm8k"]
    if chosen.cpu and any(CASES[c][0] != "gsm8k" for c in chosen.cases):
        parser.error("--cpu is for cases of gsm8k")
    for option, names in (("use", gsm8k.ENGINES + gsm8k.TRAINERS), ("add", gsm8k.PLACES)):
        for text in getattr(chosen, option):
            if text.partition("=")[0] not in names:
                parser.error(f"--{option} {text}: expected NAME=…, NAME one of {', '.join(names)}")
    return chosen


def gpu(number: int) -> dict[str, str]:
    names = ["name", "memory.total", "driver_version", "power.limit"]
    query = ["nvidia-smi", "-i", str(number), f"--query-gpu={','.join(names)}", "--format=csv,noheader"]
    try:
        line = subprocess.run(query, capture_output=True, text=True, check=True, timeout=30).stdout
    except (OSError, subprocess.SubprocessError) as error:
        sys.exit(f"no NVIDIA GPU was found: nvidia-smi: {error}")
    return dict(zip(names, (value.strip() for value in line.split(",")), strict=True))


SHARED = ("torch", "transformers", "peft")


def passed() -> dict[str, str]:
    return {n: os.environ[n] for n in PASSED if n in os.environ}


def program(options: argparse.Namespace, name: str) -> tuple[str, dict[str, str]]:
    """The interpreter of an engine or trainer, and its environment."""
    python, environment = options.python, passed()
    for text in options.use:
        if text.startswith(name + "="):
            python, _, path = text.partition("=")[2].partition(",")
            if path:
                environment["PYTHONPATH"] = path
    return shutil.which(python) or python, environment


def versions(python: str, environment: dict[str, str], names: tuple[str, ...], all_of_them: bool) -> dict[str, str]:
    """The versions of packages that the interpreter finds."""
    code = f"""import importlib.metadata as m, json
found = {{}}
for n in {names!r}:
    try:
        found[n] = m.version(n)
    except m.PackageNotFoundError:
        if {all_of_them}:
            raise
print(json.dumps(found))"""
    answer = subprocess.run([python, "-c", code], capture_output=True, text=True, timeout=300, check=False,
                            env={**os.environ, **environment})  # fmt: skip
    if answer.returncode:
        sys.exit(f"{python} lacks a package: {answer.stderr.strip().splitlines()[-1]}")
    return json.loads(answer.stdout.strip().splitlines()[-1])


def machine(options: argparse.Namespace) -> dict[str, object]:
    if all(c in CASES and CASES[c][0] == "gsm8k" for c in options.cases):  # learn.py has others
        programs = {name for c in options.cases for name in CASES[c][1].values()}
        packages = {name: versions(*program(options, name), (name, *SHARED), False) for name in sorted(programs)}
    else:
        trl = ("trl",) if any("trl" in c for c in options.cases) else ()
        packages = versions(options.python, passed(), (*SHARED, "vllm", *trl), True)
    return {
        "gpu": None if options.cpu else gpu(options.gpu),
        "cores": os.cpu_count(),
        "system": platform.platform(),
        "packages": packages,
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
    mine = {"python": options.python, "device": str(options.gpu), "environment": json.dumps(passed())}
    if options.inference_gpus:
        mine["inference_devices"] = json.dumps(options.inference_gpus.split(","))
    if options.transport:
        mine["transport"] = options.transport
    if options.ranks > 1:
        mine["trainer_devices"] = json.dumps([str(options.gpu + n) for n in range(options.ranks)])
    mine["tensor_parallel_size"] = options.tensor_parallel
    return apply(options, folder, "loop.hcl", {**settings, **mine})


def gsm8k_command(options: argparse.Namespace, settings: dict[str, object], folder: Path) -> list[str]:
    programs = {name: program(options, name) for name in (*gsm8k.ENGINES, *gsm8k.TRAINERS)}
    more: dict[str, list[str]] = {}
    for text in options.add:
        name, _, line = text.partition("=")
        more.setdefault(name, []).append(line)
    (folder / "gsm8k.hcl").write_text(gsm8k.derive(
        {name: python for name, (python, _) in programs.items()},
        {name: environment for name, (_, environment) in programs.items()},
        more, 16 if options.cpu else options.max_tokens, options.gpu, options.ranks, options.cpu,
    ))  # fmt: skip
    return apply(options, folder, "gsm8k.hcl", {k: settings[k] for k in ("model", "steps", "engine", "trainer")})


def apply(options: argparse.Namespace, folder: Path, recipe: str, variables: dict[str, object]) -> list[str]:
    (folder / "settings.hcl").write_text(f'dev_overrides {{\n  scores = "{options.scores.resolve()}"\n}}\n')
    command = [str(options.recipe.resolve()), "apply", "-y", "--json", recipe]
    for name, value in variables.items():
        text = value if isinstance(value, str) else json.dumps(value)
        command += ["--var", f"{name}={text}"]
    return command


def trl_command(options: argparse.Namespace, settings: dict[str, object], folder: Path) -> list[str]:
    (folder / "settings.json").write_text(json.dumps(settings))
    return [options.python, str(HERE / "trl_loop.py"), "settings.json"]


def event_in(line: str) -> dict[str, object]:
    """The event that this line is; empty: it is none."""
    try:
        event = json.loads(line)
    except ValueError:
        return {}
    return event if isinstance(event, dict) else {}


def update_of(line: str) -> dict[str, float]:
    """Metrics of an update of weights, if this line has them."""
    event = event_in(line)
    ours = str(event.get("address", "")).startswith("sync.") and event.get("type") == "metrics"
    return event.get("metrics", {}) if ours else {}


def steps_of(kind: str, line: str) -> tuple[int | None, dict[str, float]]:
    """The step that this line says has ended, and metrics in it."""
    event = event_in(line)
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
        "steps": options.steps or (11 if kind == "gsm8k" else 6),
        "prompts": options.prompts,
        "group_size": options.group_size,
        "max_tokens": options.max_tokens,
        "memory": options.memory,
        **own,
    }
    commands = {"recipe": recipe_command, "gsm8k": gsm8k_command, "trl": trl_command}
    command = commands[kind](options, settings, folder)
    environment = {**os.environ, "RECIPE_CONFIG": str(folder.resolve() / "settings.hcl"), "PYTHONUNBUFFERED": "1"}
    if kind == "trl":
        environment["CUDA_VISIBLE_DEVICES"] = str(options.gpu)
    memory, ends, metrics, updates = Memory(options.gpu), {}, [], []
    if not options.cpu:
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
            if update := update_of(line):
                updates.append(update)
        status = process.wait()
        deadline.cancel()
        if status and kind != "trl":  # whatever it left on the GPU would be in the next case's way
            keep_logs(folder)
            subprocess.run(
                [command[0], "destroy", "-y"], cwd=folder, env=environment, stdout=errors, stderr=errors, check=False
            )
    if not options.cpu:
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
        "updates": updates,
    }


def keep_logs(folder: Path) -> None:
    """Copy the logs of a failed run's programs to FOLDER/logs, for they go with the run."""
    blocks = folder / ".recipe"
    for log in blocks.rglob("*.log*"):
        kept = folder / "logs" / log.relative_to(blocks)
        kept.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(log, kept)


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
        shape = "tiny" if options.cpu else options.shape
        subprocess.run([options.python, HERE / "model.py", shape, options.tokenizer, model], check=True)
    results: list[dict[str, object]] = []
    for case in options.cases:
        results.append(run(options, case, model))
        (options.out / "result.json").write_text(json.dumps({"machine": about, "results": results}, indent=1))
        print(table(results[-1:]).splitlines()[-1], file=sys.stderr, flush=True)
    print(table(results))
    return max(1 if r["status"] else 0 for r in results)


if __name__ == "__main__":
    sys.exit(main())
