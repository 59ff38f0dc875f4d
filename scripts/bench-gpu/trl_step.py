"""Time TRL's own training step, alone, on the shapes and made-up batches of step.py: no generation, no vLLM.

usage: trl_step.py [--cases 7B-lora-8k,…] [--steps N] [--shape …] [--sequences N] [--length N] [--device auto|cpu]
[--limit SECONDS] [--out FILE]

GRPOTrainer.train() runs as it is, with its optimizer, clipping and metrics; only what generates and scores is replaced
by the batch. Each case runs in a process of its own, with the first of its settings that goes through: the next are for
less memory. Full fine-tuning of the 7B shape is offloaded by DeepSpeed (ZeRO-2, its Adam on the CPU, everything in
bfloat16, where step.py's weights and moments are float32: DeepSpeed keeps a copy of the weights beside the moments);
where that fails, and in cases that end in -gpu (bfloat16 in both), nothing is offloaded. Prints one JSON line a case:
tokens a second, seconds of each step, peak memory, settings, versions, and what failed before. Needs torch,
transformers and trl; peft for LoRA, deepspeed for offloading; liger_kernel is used on a GPU where it is there.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import importlib.util
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import step
from trl_learn import free_port

OFFLOADED = {"offload": "deepspeed"}
KEPT = {"gradient_checkpointing": False}
#: Settings of TRL by case of step.py, the preferred first: sequences at once, activations recomputed unless said.
CASES: dict[str, list[dict]] = {
    "full": [{"micro_batch": 16, **KEPT}, {"micro_batch": 8}],
    "master": [{"micro_batch": 16, **KEPT}, {"micro_batch": 8}],
    "lora": [{"micro_batch": 16, **KEPT}, {"micro_batch": 8}],
    "7B-lora-8k": [{"micro_batch": 1, **KEPT}, {"micro_batch": 8}, {"micro_batch": 2}, {"micro_batch": 1}],
    "7B-lora-8k-recomputed": [{"micro_batch": 8}, {"micro_batch": 2}, {"micro_batch": 1}],
    "7B-lora-32k": [{"micro_batch": 2}, {"micro_batch": 1}],
    "7B-full-8k": [{"micro_batch": 8, **OFFLOADED}, {"micro_batch": 2, **OFFLOADED}, {"micro_batch": 2}],
    "7B-full-32k": [{"micro_batch": 2, **OFFLOADED}, {"micro_batch": 1, **OFFLOADED}, {"micro_batch": 1}],
    "7B-full-8k-gpu": [{"micro_batch": 1, **KEPT}, {"micro_batch": 4}, {"micro_batch": 2}, {"micro_batch": 1}],
    "7B-full-32k-gpu": [{"micro_batch": 1}],
}
PACKAGES = ("trl", "torch", "transformers", "accelerate", "peft", "deepspeed", "liger_kernel")


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", default="7B-lora-8k,7B-lora-32k,7B-full-8k,7B-full-32k")
    parser.add_argument("--steps", type=int, default=2, help="timed steps after one that is not")
    parser.add_argument("--shape", choices=step.SHAPES, help="default: the case's, or 1.5B")
    parser.add_argument("--sequences", type=int, help="default: the case's, or 64")
    parser.add_argument("--length", type=int, help="default: the case's, or 1024")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--limit", type=float, default=200, help="seconds that one case may take")
    parser.add_argument("--out", type=Path, default=Path("dist/bench-trl-step.json"))
    parser.add_argument("--one", help=argparse.SUPPRESS)
    parser.add_argument("--settings", type=json.loads, help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    for name in chosen.cases.split(","):
        if name not in CASES:
            parser.error(f"unknown case {name!r}; there are: {', '.join(CASES)}")
    return chosen


def case_of(options: argparse.Namespace, name: str) -> dict:
    """What step.py's case of this name trains, on what: options win over the case."""
    case = step.CASES[name.removesuffix("-recomputed")]
    sizes = {"shape": "1.5B", "sequences": 64, "length": 1024, "lengths": "equal"}
    given = {k: v for k in sizes if (v := getattr(options, k, None)) is not None}
    return {**sizes, **case, **given}


# ---- one case, in this process ----


def weights(case: dict, device: str):
    """Random weights, made where they are used. They are bfloat16 where only adapters train, as step.py's, and where
    DeepSpeed is to offload."""
    import torch
    from transformers import AutoModelForCausalLM, Qwen2Config

    common = {"tie_word_embeddings": True, "max_position_embeddings": 32768, "use_cache": False}
    config = Qwen2Config(**{**common, **step.SHAPES[case["shape"]]})
    narrow = "lora" in case or case.get("model", {}).get("dtype") == "bfloat16" or "optimizer" in case
    torch.manual_seed(0)
    with torch.device(device):
        return AutoModelForCausalLM.from_config(
            config, dtype=torch.bfloat16 if narrow else torch.float32, attn_implementation="sdpa"
        )


def tokenizer():
    """TRL wants one, for special tokens."""
    from tokenizers import Tokenizer, models
    from transformers import PreTrainedTokenizerFast

    words = Tokenizer(models.WordLevel({"<pad>": 0, "<eos>": 1}, unk_token="<pad>"))
    return PreTrainedTokenizerFast(tokenizer_object=words, pad_token="<pad>", eos_token="<eos>")


def batch(case: dict, device: str) -> dict:
    """step.py's made-up batch in TRL's tensors: scores become advantages, completions are filled up on the right."""
    import torch

    lengths = step.lengths_of(case["lengths"], case["sequences"], case["length"])
    prompt, rows, advantages = case["length"] // 4, [], []
    for tokens, scores in step.made_up(step.SHAPES[case["shape"]]["vocab_size"], lengths):
        rows += tokens
        advantages.append((scores - scores.mean()) / (scores.std() + 1e-4))
    ids = torch.zeros(len(rows), max(lengths), dtype=torch.long)
    mask = torch.zeros_like(ids)
    for i, row in enumerate(rows):
        ids[i, : len(row)] = torch.tensor(row)
        mask[i, : len(row)] = 1
    made = {
        "prompt_ids": ids[:, :prompt], "prompt_mask": mask[:, :prompt], "completion_ids": ids[:, prompt:],
        "completion_mask": mask[:, prompt:], "advantages": torch.cat(advantages),
        "num_items_in_batch": mask[:, prompt:].sum(),
    }  # fmt: skip
    return {name: tensor.to(device) for name, tensor in made.items()}


def deepspeed(learning_rate: float) -> dict:
    """ZeRO-2 with weights, gradients and moments in bfloat16, the optimizer's in the host's memory."""
    return {
        "bf16": {"enabled": True, "bf16_master_weights_and_grads": True, "bf16_optimizer_states": True},
        "zero_optimization": {
            "stage": 2, "contiguous_gradients": True, "offload_optimizer": {"device": "cpu", "pin_memory": True},
        },
        "optimizer": {"type": "AdamW", "params": {"lr": learning_rate, "weight_decay": 0.0}},
        "gradient_clipping": 1.0, "train_batch_size": "auto", "train_micro_batch_size_per_gpu": "auto",
        "gradient_accumulation_steps": "auto",
    }  # fmt: skip


def configuration(options: argparse.Namespace, case: dict, settings: dict, cuda: bool, folder: str):
    """TRL's arguments."""
    from trl import GRPOConfig

    n = case["sequences"]
    micro = min(settings["micro_batch"], n)
    more = {"deepspeed": deepspeed(1e-6)} if settings.get("offload") else {}
    return GRPOConfig(
        output_dir=folder,
        per_device_train_batch_size=micro,
        gradient_accumulation_steps=n // micro,
        num_generations=min(8, n),
        max_completion_length=case["length"],
        max_steps=1 + options.steps,
        learning_rate=1e-6,
        beta=0.0,
        bf16=cuda or bool(more),
        use_cpu=not cuda,
        gradient_checkpointing=settings.get("gradient_checkpointing", True),
        use_liger_kernel=cuda and settings.get("liger", True) and importlib.util.find_spec("liger_kernel") is not None,
        logging_steps=1,
        save_strategy="no",
        report_to=[],
        disable_tqdm=True,
        **more,
    )


def timer(cuda: bool):
    """A callback with the seconds and the gradient norms of the steps."""
    import torch
    from transformers import TrainerCallback

    class Timer(TrainerCallback):
        began, seconds, norms = 0.0, [], []

        def now(self) -> float:
            if cuda:
                torch.cuda.synchronize()
            return time.perf_counter()

        def on_train_begin(self, *_, **__):
            if cuda:
                torch.cuda.reset_peak_memory_stats()

        def on_step_begin(self, *_, **__):
            self.began = self.now()

        def on_step_end(self, *_, **__):
            self.seconds.append(self.now() - self.began)

        def on_log(self, *_, logs=None, **__):
            self.norms += [logs["grad_norm"]] if "grad_norm" in logs else []

    return Timer()


def trainer(case: dict, config, timing, device: str):
    """GRPOTrainer whose completions and advantages are the batch."""
    from datasets import Dataset
    from trl import GRPOTrainer

    made = batch(case, device)

    class Stepper(GRPOTrainer):
        def _generate_and_score_completions(self, inputs):
            return dict(made)

    peft = None
    if "lora" in case:
        from peft import LoraConfig

        peft = LoraConfig(
            r=case["lora"]["rank"], lora_alpha=case["lora"]["alpha"], target_modules="all-linear",
            task_type="CAUSAL_LM",
        )  # fmt: skip
    return Stepper(
        model=weights(case, device),
        reward_funcs=lambda completions, **_: [0.0] * len(completions),
        args=config,
        train_dataset=Dataset.from_dict({"prompt": ["none"] * 64}),
        processing_class=tokenizer(),
        peft_config=peft,
        callbacks=[timing],
    )


def measure(options: argparse.Namespace, name: str, settings: dict) -> dict:
    """One case with these settings."""
    began = time.perf_counter()
    # DeepSpeed wants the variables that a launcher sets.
    defaults = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1",
                "NCCL_SOCKET_IFNAME": "lo"}  # fmt: skip
    for variable, value in {**defaults, "MASTER_PORT": free_port()}.items():
        os.environ.setdefault(variable, value)
    import resource

    import torch

    cuda = options.device != "cpu" and torch.cuda.is_available()
    case, timing = case_of(options, name), timer(cuda)
    with tempfile.TemporaryDirectory() as folder:
        config = configuration(options, case, settings, cuda, folder)
        t = trainer(case, config, timing, "cuda" if cuda else "cpu")
        loaded = time.perf_counter() - began
        t.train()
    steps = timing.seconds[1:]
    best = sorted(steps)[len(steps) // 2]
    tokens = sum(step.lengths_of(case["lengths"], case["sequences"], case["length"]))
    return {
        "case": f"trl {name}", "tokens_per_second": round(tokens / best), "step_s": round(best, 4),
        "steps_s": [round(s, 4) for s in steps], "first_step_s": round(timing.seconds[0], 2),
        "grad_norms": timing.norms,
        "peak_gib": round(torch.cuda.max_memory_allocated() / 2**30, 2) if cuda else None,
        "host_peak_gib": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20, 2),
        "load_s": round(loaded, 1), "tokens": tokens, "sequences": case["sequences"], "length": case["length"],
        "micro_batch": config.per_device_train_batch_size, "gradient_checkpointing": config.gradient_checkpointing,
        "offload": settings.get("offload"), "optimizer": type(getattr(t.optimizer, "optimizer", t.optimizer)).__name__,
        "dtype": str(t.model.dtype).removeprefix("torch."), "bf16": config.bf16, "liger": config.use_liger_kernel,
        "attention": t.model.config._attn_implementation, "versions": versions(),
    }  # fmt: skip


def versions() -> dict[str, str]:
    found = {}
    for package in PACKAGES:
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


# ---- all of them ----


def attempt(name: str, settings: dict, limit: float) -> dict:
    """One case with these settings in a process of its own, which may take `limit` seconds."""
    command = [sys.executable, __file__, *sys.argv[1:], "--one", name, "--settings", json.dumps(settings)]
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}
    tell(f"{name} starts with {json.dumps(settings)}")
    process = subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    try:
        out, errors = process.communicate(timeout=limit)
    except subprocess.TimeoutExpired:
        return {"error": f"timed out after {limit:.0f} s"}
    finally:
        if process.poll() is None:  # with the compiler that DeepSpeed may have started
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    lines = [line for line in out.splitlines() if line.startswith('{"case"')]
    if process.returncode or not lines:
        return {"error": f"exit {process.returncode}: {(errors or out).strip()[-2500:]}"}
    return json.loads(lines[-1])


def run(options: argparse.Namespace, name: str) -> dict:
    """One case, with the first of its settings that goes through."""
    began, failed, left = time.perf_counter(), [], list(CASES[name])
    found: dict = {"error": "no settings"}
    while left and (rest := options.limit - (time.perf_counter() - began)) > 0:
        settings = left.pop(0)
        found = attempt(name, settings, rest)
        tell(f"{name} {'failed' if 'error' in found else 'ends'} {time.perf_counter() - began:.0f} s after its start")
        if "error" not in found:
            break
        failed.append({"settings": settings, "error": found["error"]})
        if "out of memory" in found["error"]:
            continue
        if "liger" in found["error"] and settings.get("liger", True):
            left = [{**s, "liger": False} for s in (settings, *left)]
        else:  # fewer sequences at once do not help
            left = [s for s in left if s.get("offload") != settings.get("offload")]
    seconds = round(time.perf_counter() - began, 1)
    return {"case": f"trl {name}", **found, "process_s": seconds, "failed": failed}


def tell(text: str) -> None:
    print(f"{time.strftime('%H:%M:%S', time.gmtime())} trl {text}", file=sys.stderr, flush=True)


def main() -> int:
    options = arguments()
    if options.one:
        print(json.dumps(measure(options, options.one, options.settings)))
        return 0
    results = []
    options.out.parent.mkdir(parents=True, exist_ok=True)
    for name in options.cases.split(","):
        results.append(run(options, name))
        print(json.dumps(results[-1]), flush=True)
        options.out.write_text(json.dumps({"command": sys.argv, "results": results}, indent=1))
    return int(any("error" in r for r in results))


if __name__ == "__main__":
    sys.exit(main())
