"""Time the worker's own training step, alone, on random weights and made-up batches: 64 sequences of 1,024 tokens.

usage: step.py [--cases full,master,lora] [--steps N] [--ranks N] [--profile CASE,…] [--shape 1.5B|7B|tiny|narrow]
[--device auto|cpu] [--out FILE] [--beside-trl [FOLDER]]

Every case runs in a process of its own, with --ranks in several that share the batch, with an empty compile cache;
NAME-warm runs NAME once more with the cache that it left. Prints one JSON line a case: tokens a second, MFU (model
FLOPs, recomputation not counted), peak memory, seconds of the compilation before the first batch and of the first step,
graphs compiled in the steps after it, what was decided and why, seconds of what follows a step: weights for inference,
and the proof of them. --beside-trl: each case that trl_step.py has is followed by TRL's own step on the same batch, and
by the ratio of the two. The worker and the SDK are found by PYTHONPATH=sdk/python/src:plugins/grpo.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

BF16 = {"model": {"dtype": "bfloat16"}}
SAVING = {"model": {"dtype": "bfloat16", "gradient_checkpointing": True, "row_tokens": 16384, "head_chunk": 1024}}
LORA = {"lora": {"rank": 64, "alpha": 32}}
AWAY = {"optimizer": {"offload": True}}
FLOAT8, BACK8 = {"model": {"float8": "all"}}, {"model": {"float8": "backward"}}
#: What a recipe would say. The rest is of this program: `shape` says what is trained, `sequences`, `length` and
#: `lengths` on what, `left` how many GiB are free once the weights are there, `squeeze` how many GiB disappear once
#: the worker has decided how to run.
CASES: dict[str, dict] = {
    "full": BF16,
    "full16k": {"model": {"dtype": "bfloat16", "row_tokens": 16384}},
    "master": {},
    "master16k": {"model": {"row_tokens": 16384}},
    "offload": AWAY,  # otherwise as master
    "lora": LORA,
    "lora16k": {**LORA, "model": {"row_tokens": 16384}},
    "lora-kl": {**LORA, "kl": {"coefficient": 0.001}},
    "memory": SAVING,
    "memory8k": {"model": {**SAVING["model"], "row_tokens": 8192}},
    "ragged": {**BF16, "lengths": "ragged"},
    "squeezed": {"squeeze": 100},
    "full-bound": {**BF16, "data": {"max_length": 1 << 20}},  # longer than any memory holds, and than what comes
    "master-24gib": {"left": 24},
    "full-24gib": {**BF16, "left": 24},
    "lora-8gib": {**LORA, "left": 8},
    "full-shards": {"model": {**BF16["model"], "replicate": False}},  # several GPUs: FSDP2 though each could hold it
    "lora-shards": {**LORA, "model": {"replicate": False}},
    "memory-shards": {"model": {**SAVING["model"], "replicate": False}},
    "full-shards-float8": {"model": {**BF16["model"], **FLOAT8["model"], "replicate": False}},
    "lora-shards-back8": {**LORA, "model": {**BACK8["model"], "replicate": False}},
    "full-shards-24gib": {"model": {**BF16["model"], "replicate": False}, "left": 24},
    "7B-lora-8k": {**LORA, "shape": "7B", "sequences": 8, "length": 8192},
    "7B-lora-32k": {**LORA, "shape": "7B", "sequences": 2, "length": 32768},
    "7B-full-8k": {**AWAY, "shape": "7B", "sequences": 8, "length": 8192},
    "7B-full-32k": {**AWAY, "shape": "7B", "sequences": 2, "length": 32768},
    "7B-full-8k-gpu": {**BF16, "shape": "7B", "sequences": 8, "length": 8192},
    "7B-full-32k-gpu": {**BF16, "shape": "7B", "sequences": 2, "length": 32768},
    "7B-full-8k-gpu-float8": {
        "model": {**BF16["model"], **FLOAT8["model"]},
        "shape": "7B",
        "sequences": 8,
        "length": 8192,
    },
    "full-float8": {"model": {**BF16["model"], **FLOAT8["model"]}},
    "lora-back8": {**LORA, **BACK8},
    "lora-float8": {**LORA, **FLOAT8},
    "7B-lora-8k-back8": {**LORA, **BACK8, "shape": "7B", "sequences": 8, "length": 8192},
    "7B-lora-8k-float8": {**LORA, **FLOAT8, "shape": "7B", "sequences": 8, "length": 8192},
    "7B-lora-32k-back8": {**LORA, **BACK8, "shape": "7B", "sequences": 2, "length": 32768},
    "7B-lora-32k-float8": {**LORA, **FLOAT8, "shape": "7B", "sequences": 2, "length": 32768},
    "7B-full-8k-float8": {**AWAY, **FLOAT8, "shape": "7B", "sequences": 8, "length": 8192},
    # with weights and moments in bfloat16, as trl_step.py has DeepSpeed hold them
    **{
        f"7B-full-{name}-narrow{suffix}": {
            **AWAY,
            "model": {**BF16["model"], **more},
            "shape": "7B",
            "sequences": sequences,
            "length": length,
        }
        for name, sequences, length in (("8k", 8, 8192), ("32k", 2, 32768))
        for suffix, more in (("", {}), ("-back8", BACK8["model"]), ("-float8", FLOAT8["model"]))
    },
    "plain": {"model": {"dtype": "bfloat16", "compile": False, "row_tokens": 16384}},
}
SHAPES = {
    "tiny": dict(vocab_size=256, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4,
                 num_key_value_heads=2),
    # as many parts as 1.5B and hardly any numbers: what is left is the CPU's share
    "narrow": dict(vocab_size=256, hidden_size=32, intermediate_size=64, num_hidden_layers=28, num_attention_heads=4,
                   num_key_value_heads=2),
    "1.5B": dict(vocab_size=151936, hidden_size=1536, intermediate_size=8960, num_hidden_layers=28,
                 num_attention_heads=12, num_key_value_heads=2),
    "7B": dict(vocab_size=152064, hidden_size=3584, intermediate_size=18944, num_hidden_layers=28,
               num_attention_heads=28, num_key_value_heads=4, tie_word_embeddings=False),
}  # fmt: skip


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", default="full,master,lora,lora-warm,memory,ragged")
    parser.add_argument("--steps", type=int, default=5, help="timed steps after two that are not")
    parser.add_argument("--ranks", type=int, default=1, help="GPUs that train together")
    parser.add_argument("--profile", default="", help="cases of which the slowest kernels are listed, comma-separated")
    parser.add_argument("--shape", default="1.5B", choices=SHAPES)
    parser.add_argument("--sequences", type=int, default=64)
    parser.add_argument("--length", type=int, default=1024)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--out", type=Path, default=Path("dist/bench-step.json"))
    parser.add_argument("--budget", type=float, default=280, help="seconds; cases that have no time left are skipped")
    parser.add_argument("--limit", type=float, default=100, help="seconds that one case may take")
    parser.add_argument("--beside-trl", nargs="?", const="", metavar="FOLDER",
                        help="time TRL's step, too; FOLDER has trl, if the interpreter has not")  # fmt: skip
    parser.add_argument("--one", help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    unknown = [c for c in chosen.cases.split(",") if c.removesuffix("-warm") not in CASES]
    if unknown:
        parser.error(f"unknown case {unknown[0]!r}; there are: {', '.join(CASES)}, each also with -warm")
    return chosen


# ---- one case, in this process ----


def lengths_of(kind: str, n: int, longest: int) -> list[int]:
    """Tokens of each sequence: all the longest, or a spread like that of real answers (log-normal, half on average)."""
    import torch

    if kind != "ragged":
        return [longest] * n
    prompt = longest // 4
    spread = torch.exp(torch.randn(n, generator=torch.Generator().manual_seed(1)) * 0.55)
    return [prompt + int(v) for v in (spread * 0.3 * 3 * prompt).clamp(16, 3 * prompt).long()]


def made_up(vocabulary: int, lengths: list[int]):
    """Tokens and scores, both random, of groups of at most 8 sequences."""
    import torch

    g = torch.Generator().manual_seed(1)
    for k in range(0, len(lengths), 8):
        tokens = [torch.randint(1, vocabulary, (n,), generator=g).tolist() for n in lengths[k : k + 8]]
        yield tokens, torch.randn(len(tokens), generator=g)


def batch(vocabulary: int, lengths: list[int], prompt: int):
    """Groups of 8 random completions with random scores; the prompt's tokens are not trained."""
    import math

    from recipe_sdk.groups import ReadOptions, read_group
    from worker import batch as batches

    groups = []
    for tokens, scores in made_up(vocabulary, lengths):
        groups.append(read_group({
            "tokens": tokens, "masks": [[-100] * prompt + t[prompt:] for t in tokens],
            "scores": scores.tolist(),
            "inference_logprobs": [[1.0] * prompt + [-math.log(vocabulary)] * (len(t) - prompt) for t in tokens],
        }, ReadOptions()))  # fmt: skip
    return batches.build(groups)


def stepper(directory: str, options: argparse.Namespace, settings: dict):
    """The worker's own stepper for random weights of the shape."""
    from recipe_sdk import fields
    from recipe_sdk.ranks import Ranks
    from transformers import Qwen2Config
    from worker import config, model, optim, spread
    from worker.memory import Memory
    from worker.step import Stepper

    path = Path(directory) / "model"
    common = {"tie_word_embeddings": True, "max_position_embeddings": 32768}
    Qwen2Config(**{**common, **SHAPES[options.shape]}).save_pretrained(path)
    c = config.from_dict(fields.merge({
        "model": {"path": str(path), "random_init": True, "device": options.device},
        "kl": {"coefficient": 0.0}, "data": {"url": "http://unused", "max_length": max(options.length, 2)},
        "optimizer": {"learning_rate": 1e-6},
        "correction": {"mismatch_action": "warn"},
    }, settings))  # fmt: skip
    ranks = Ranks(model.device_of(c, int(os.environ.get("LOCAL_RANK", 0))))
    meshes = []
    policy, summary = model.load_policy(c, ranks.device, None, lambda p: meshes.append(spread.put(p, c, ranks)[0]))
    reference = model.Reference(c, policy, ranks.device, *meshes)
    return Stepper(c, policy, reference, optim.build(c, policy.parameters()), ranks, Memory()), summary


def measure(options: argparse.Namespace, name: str) -> dict:
    """One case."""
    began = time.perf_counter()
    import torch
    from worker import compiled, early, host, metrics

    settings = dict(CASES[name.removesuffix("-warm")])
    kind, squeeze = settings.pop("lengths", "equal"), settings.pop("squeeze", 0)
    left = settings.pop("left", 0)
    for option in ("shape", "sequences", "length"):
        setattr(options, option, settings.pop(option, getattr(options, option)))
    imported = time.perf_counter() - began
    with tempfile.TemporaryDirectory() as directory:
        s, summary = stepper(directory, options, settings)
    device = s.ranks.device
    cuda = device.type == "cuda"
    b = batch(
        SHAPES[options.shape]["vocab_size"], lengths_of(kind, options.sequences, options.length), options.length // 4
    )
    loaded = time.perf_counter() - began - imported
    taken = None  # as by another program
    if left and cuda:
        torch.cuda.empty_cache()
        others = torch.cuda.mem_get_info(device)[0] - (left << 30)
        taken = torch.empty(others, dtype=torch.uint8, device=device)

    def step(k: int) -> tuple[float, dict]:
        clock = metrics.Clock(device)
        start = time.perf_counter()
        report = s.train(b, k, clock)
        phases = clock.metrics()
        return time.perf_counter() - start, {**report, **phases}

    if s.ranks.world > 1:
        s.ranks.share(None)  # all have loaded
    host.calm(device, 0)
    early.compiler(s.config)  # a trainer does so while inference starts
    prepared = time.perf_counter() - began - imported - loaded
    warm_up = s.warm_up(s.config)
    host.settle(device)
    spent = compiling(12)
    held = None
    if squeeze and cuda:
        s.note(s.sizing.decide(s.config, b))
        held = torch.empty(squeeze << 30, dtype=torch.uint8, device=device)
    if cuda:
        torch.cuda.reset_peak_memory_stats(device)
    first, report = step(0)
    step(1)
    graphs = compiled.count()
    times, losses = [], []
    for k in range(2, 2 + options.steps):
        seconds, report = step(k)
        times.append(seconds)
        losses.append(report["loss/total"])
    best = sorted(times)[len(times) // 2]
    work = metrics.flops(s.policy.causal.config, s.count, b, not s.policy.adapted, 1)
    peak = (metrics.peak(device, None) or 0) * options.ranks
    out = {
        "case": name, "ranks": options.ranks, "losses": losses,
        "tokens_per_second": round(b.total_tokens / best), "step_s": round(best, 4),
        "steps_s": [round(t, 4) for t in times], "mfu": round(work / best / peak, 4) if peak else None,
        "tflops": round(work / best / 1e12, 1), "warm_up_s": round(warm_up, 2), "first_step_s": round(first, 2),
        "compiling": spent, "compiling_with_steps": compiling(12), "compilations_in_steps": compiled.count() - graphs,
        "graphs": compiled.count(), "decided": s.notes,
        "choice": {k: v for k, v in vars(s.sizing.choice).items() if k != "reason"}, "tokens": b.total_tokens,
        "peak_gib": round(torch.cuda.max_memory_allocated(device) / 2**30, 2) if cuda else None,
        "allocator": allocator(device),
        "held_gib": squeeze if held is not None else 0, "others_gib": taken.numel() >> 30 if taken is not None else 0,
        "import_s": round(imported, 1), "load_s": round(loaded, 1),
        "compiler_import_s": round(prepared, 1),
        "phases": {k: round(v, 4) for k, v in report.items() if k.startswith("time/")}, "dtype": summary["dtype"],
        "compute_dtype": summary["compute_dtype"], "float8": summary["float8"], "attention": summary["attention"],
        "grad_norm": report["grad_norm"],
    }  # fmt: skip
    if cuda and options.ranks == 1:
        out["waits_in_step"] = waits(lambda: step(90))
    if options.ranks == 1:
        if cuda:
            torch.cuda.empty_cache()  # of what steps need: a graph has a memory of its own
        out["between_steps"] = between(s)
    if name in options.profile.split(","):
        out["profile"] = profile(lambda: step(99), cuda, options.out.with_suffix(f".{name}.txt"))
    return out


def allocator(device) -> dict[str, float]:
    """GiB that torch has taken of the device at most, and how often it had to give back what it kept to get more."""
    import torch

    if device.type != "cuda":
        return {}
    stats = torch.cuda.memory_stats(device)
    return {"taken_gib": round(stats["reserved_bytes.all.peak"] / 2**30, 2), "retries": stats["num_alloc_retries"]}


def between(s) -> dict[str, object]:
    """Medians of what follows a step: tensors for inference made equal to the weights; log-probabilities of 26 tokens,
    computed and as a graph, with the largest difference of the two. Without a GPU the graph is an answer that is kept:
    what is left is what the CPU does around one."""
    from functools import partial

    import torch
    from recipe_sdk.ipc import Shared
    from worker import batch, float8, replay, weights

    device, shared = s.ranks.device, Shared()
    cuda = device.type == "cuda"

    def kept(forward):
        answer = forward()
        return (lambda: None), answer

    row = batch.whole_row(torch.arange(2, 28))

    def forward(row):
        with torch.no_grad(), s.policy.uncompiled(), float8.exact(s.policy.parts):
            return s.policy(row).lp

    def publish():
        named = partial(weights.merged, s.policy)
        return shared.refresh(named, device, 1, None, False, lambda: dict(s.policy.causal.named_parameters()))

    def median(action) -> float:
        times = []
        for _ in range(7):
            if cuda:
                torch.cuda.synchronize()
            start = time.perf_counter()
            action()
            if cuda:
                torch.cuda.synchronize()
            times.append(time.perf_counter() - start)
        return round(sorted(times)[3], 5)

    def proof():
        s.policy.eval()
        return graph(row, forward)

    s.policy.eval()
    graph = replay.Replay(s.policy, device, replay.record if cuda else kept)
    there = row.to(device)
    out = {"publish_s": median(publish), "proof_s": median(lambda: forward(there))}
    plain, _, _ = forward(there), graph(row, forward), graph(row, forward)
    out |= {"replayed_s": median(proof), "refused": graph.refused}
    return out | {"difference": float((graph(row, forward) - plain).abs().max())}


def compiling(most: int) -> dict[str, float]:
    """Seconds in the longest parts of torch's compiler so far."""
    from torch._dynamo.utils import compilation_time_metrics

    found = {name: round(sum(times), 1) for name, times in compilation_time_metrics.items()}
    return dict(sorted(found.items(), key=lambda x: -x[1])[:most])


def waits(action) -> list[str]:
    """Where a step waits for the device: source lines."""
    import warnings

    import torch

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        torch.cuda.set_sync_debug_mode("warn")
        try:
            action()
        finally:
            torch.cuda.set_sync_debug_mode("default")
    return [f"{Path(w.filename).name}:{w.lineno}" for w in caught if "synchroniz" in str(w.message)]


def profile(action, cuda: bool, path: Path) -> list[list]:
    """The slowest kernels of a step: [name, milliseconds, calls]; a longer table goes into a file."""
    from torch.profiler import ProfilerActivity, profile

    activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if cuda else [])]
    with profile(activities=activities) as found:
        action()
    order = "self_device_time_total" if cuda else "self_cpu_time_total"
    averages = found.key_averages()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(averages.table(sort_by=order, row_limit=70, max_name_column_width=110))
    rows = sorted(averages, key=lambda e: -getattr(e, order))[:30]
    return [[e.key[:90], round(getattr(e, order) / 1e3, 2), e.count] for e in rows]


# ---- all of them ----


def run(options: argparse.Namespace, name: str, cache: Path) -> dict:
    """One case in a process of its own."""
    launch = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={options.ranks}"]
    command = [sys.executable, *(launch if options.ranks > 1 else []), __file__, *sys.argv[1:], "--one", name]
    environment = {**os.environ, "TORCHINDUCTOR_CACHE_DIR": str(cache / name.removesuffix("-warm")),
                   "TORCH_LOGS": "recompiles"}  # fmt: skip
    began = time.perf_counter()
    try:
        done = subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=options.limit, check=False
        )
    except subprocess.TimeoutExpired:
        return {"case": name, "error": f"timed out after {options.limit:.0f} s"}
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    if done.returncode or not lines:
        return {"case": name, "error": (done.stderr or done.stdout).strip()[-2500:]}
    lines_of_torch = [line for line in done.stderr.splitlines() if "[__recompiles]" in line]
    again = [line.split("[__recompiles]")[-1].strip()[:300] for line in lines_of_torch]
    return {**json.loads(lines[-1]), "process_s": round(time.perf_counter() - began, 1), "recompiles": again[:20]}


def beside(options: argparse.Namespace, ours: dict) -> list[dict]:
    """TRL's step for the case of `ours`, and how many times faster ours is; nothing where TRL has no such case."""
    import trl_step

    name = ours["case"].removesuffix("-warm")
    if name not in trl_step.CASES:
        return []
    sizes = {k: CASES[name].get(k, getattr(options, k)) for k in ("shape", "sequences", "length")}
    given = {**sizes, "cases": name, "steps": options.steps, "device": options.device, "limit": options.limit,
             "out": options.out.with_suffix(f".trl-{name}.json")}  # fmt: skip
    command = [sys.executable, trl_step.__file__, *(word for k, v in given.items() for word in (f"--{k}", str(v)))]
    path = os.pathsep.join(p for p in (options.beside_trl, os.environ.get("PYTHONPATH")) if p)
    done = subprocess.run(
        command, env={**os.environ, "PYTHONPATH": path}, stdout=subprocess.PIPE, text=True, check=False
    )
    lines = done.stdout.splitlines()
    trl = json.loads(lines[-1]) if lines else {"case": f"trl {name}", "error": f"exit {done.returncode}"}
    if "error" in ours or "error" in trl:
        return [trl]
    ratio = round(ours["tokens_per_second"] / trl["tokens_per_second"], 2)
    return [trl, {"case": f"{ours['case']} : trl", "tokens_per_second": ratio}]


def main() -> int:
    options = arguments()
    if options.one:
        found = json.dumps(measure(options, options.one))
        if int(os.environ.get("RANK", 0)) == 0:
            print(found)
        return 0
    began, results = time.perf_counter(), []
    options.out.parent.mkdir(parents=True, exist_ok=True)
    about = subprocess.run(
        [sys.executable, "-c", "import torch, transformers, json; print(json.dumps({'torch': torch.__version__, "
         "'transformers': transformers.__version__, 'gpu': torch.cuda.get_device_name() if torch.cuda.is_available() "
         "else None}))"], capture_output=True, text=True, check=True, timeout=120,
    )  # fmt: skip

    def keep(found: list[dict]) -> None:
        for one in found:
            print(json.dumps(one), flush=True)
        results.extend(found)
        options.out.write_text(json.dumps({"machine": json.loads(about.stdout), "results": results}, indent=1))

    with tempfile.TemporaryDirectory() as cache:
        for name in options.cases.split(","):
            if time.perf_counter() - began > options.budget:
                keep([{"case": name, "error": "no time left"}])
                continue
            keep([run(options, name, Path(cache))])
            if options.beside_trl is not None:
                keep(beside(options, results[-1]))
    return int(any("error" in r for r in results))


if __name__ == "__main__":
    sys.exit(main())
