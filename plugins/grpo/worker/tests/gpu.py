"""By hand on a machine with an NVIDIA GPU: python -m worker.tests.gpu OUT.json [--only kernels,head,…]

Kernels agree (variable-length attention against the block-diagonal mask), so do the head's gradients and float8's
rounding, weights reach another process by CUDA handles and follow further steps, moments in the host's memory change no
number, the pass over the fixed text can be recorded, and how fast a step of a Qwen2.5-1.5B-shaped model with random
weights is."""

from __future__ import annotations

import argparse
import itertools
import json
import math
import multiprocessing
import subprocess
import sys
import tempfile
import time
import traceback
from functools import partial
from pathlib import Path

import torch
from recipe_sdk import fields
from recipe_sdk.groups import ReadOptions, read_group
from recipe_sdk.ipc import Shared
from recipe_sdk.ranks import Ranks

from worker import batch as batches
from worker import config, float8, model, offload, optim
from worker.logprob import HeadOptions, token_logprobs
from worker.memory import Memory
from worker.metrics import PEAKS, Clock, flops
from worker.replay import LARGEST_GAP, Replay, record
from worker.step import Stepper
from worker.weights import merged

SHAPES = {
    "small": dict(vocab_size=4096, hidden_size=512, intermediate_size=1024, num_hidden_layers=4, num_attention_heads=8,
                  num_key_value_heads=2, head_dim=64),
    "1.5B": dict(vocab_size=151936, hidden_size=1536, intermediate_size=8960, num_hidden_layers=28,
                 num_attention_heads=12, num_key_value_heads=2),
}  # fmt: skip


def parameters(policy):
    """What may be shared as it is."""
    return dict(policy.causal.named_parameters())


def make(directory: str, shape: str, **change) -> Stepper:
    """A stepper for random weights of a shape."""
    from transformers import Qwen2Config

    path = Path(directory) / shape
    if not path.exists():
        Qwen2Config(**SHAPES[shape], tie_word_embeddings=True, max_position_embeddings=32768).save_pretrained(path)
    c = config.from_dict(fields.merge({
        "model": {"path": str(path), "random_init": True, "dtype": "bfloat16", "gradient_checkpointing": False},
        "kl": {"coefficient": 0.0}, "data": {"url": "http://unused"}, "optimizer": {"learning_rate": 1e-4},
        "correction": {"mismatch_action": "warn"},
    }, change))  # fmt: skip
    ranks = Ranks(model.device_of(c))
    policy, summary = model.load_policy(c, ranks.device)
    print(summary, flush=True)
    reference = model.Reference(c, policy, ranks.device)
    return Stepper(c, policy, reference, optim.build(c, policy.parameters()), ranks, Memory())


def batch(vocabulary: int, lengths: list[int], prompt: int) -> batches.Batch:
    """Groups of 8 random completions."""
    g = torch.Generator().manual_seed(1)
    groups = []
    for k in range(0, len(lengths), 8):
        tokens = [torch.randint(1, vocabulary, (n,), generator=g).tolist() for n in lengths[k : k + 8]]
        groups.append(read_group({
            "tokens": tokens, "masks": [[-100] * prompt + t[prompt:] for t in tokens],
            "scores": torch.randn(len(tokens), generator=g).tolist(),
            "inference_logprobs": [[1.0] * prompt + [-math.log(vocabulary)] * (len(t) - prompt) for t in tokens],
        }, ReadOptions()))  # fmt: skip
    return batches.build(groups)


def ragged(n: int, prompt: int, longest: int) -> list[int]:
    """The ragged lengths of the reference measurements."""
    g = torch.Generator().manual_seed(1)
    x = torch.exp(torch.randn(n, generator=g) * 0.55 + math.log(0.3 * longest)).clamp(16, longest)
    return [prompt + int(v) for v in x.long()]


def kernels(directory: str) -> dict:
    """Log-probabilities by several implementations against block-diagonal sdpa of the same weights."""
    out = {}
    b = batch(4096, ragged(16, 64, 300), 64)
    known: dict[str, torch.Tensor] = {}
    for name, change in {
        "bfloat16 sdpa": {"attention": "sdpa"}, "bfloat16 varlen": {"attention": "varlen"}, "bfloat16 auto": {},
        "bfloat16 varlen single rows": {"row_tokens": 1}, "bfloat16 compiled": {"compile": True},
        "float32 sdpa": {"dtype": "float32", "attention": "sdpa"},
        "float32 autocast varlen": {"dtype": "float32", "compute_dtype": "bfloat16", "attention": "varlen"},
    }.items():  # fmt: skip
        s = make(directory, "small", model=change)
        s.sizing.decide(s.config, b)
        lp = s.scores(s.policy, b)["lp"]
        reference = known.setdefault(name.split()[0], lp)  # the first of the same weights
        out[name] = {"mean_abs": float((lp - reference).abs().mean()), "max_abs": float((lp - reference).abs().max()),
                     "attention": s.policy.implementation}  # fmt: skip
    return out


def head(_directory: str, device: str = "cuda", vocabulary: int = 151936) -> dict:
    """Gradient of the hidden states of a head that trains, and of one that does not and calculates it with the logits,
    both against float64: largest difference, as a part of the largest number."""
    g = torch.Generator().manual_seed(0)
    rand = lambda *s: torch.randn(*s, generator=g).to(device)  # noqa: E731
    hidden, weight, up = rand(300, 1536).bfloat16(), (rand(vocabulary, 1536) * 0.02).bfloat16(), rand(300)
    label, warm = torch.randint(0, vocabulary, (300,), generator=g).to(device), torch.full((300,), 0.7, device=device)
    exact = hidden.double().requires_grad_()
    scores = (exact @ weight.double().t() / 0.7).log_softmax(-1)[torch.arange(300, device=device), label]
    (scores @ up.double()).backward()
    out, o = {}, HeadOptions(chunk=128, compile=device == "cuda", entropy=True)
    for name, trains in (("trains", True), ("frozen", False)):
        h, w = hidden.clone().requires_grad_(), weight.clone().requires_grad_(trains)
        lp, _, _ = token_logprobs(h, w, None, label, warm, o)
        (lp @ up).backward()
        out[name] = float((h.grad.double() - exact.grad).abs().max() / exact.grad.abs().max())
    return out


def float8_layers(_directory: str, device: str = "cuda") -> dict:
    """Rounding by kernels against that by plain functions, of rows and transposed: numbers that differ. A layer's
    product, and the gradient of its input, against float64: how far apart, as a part of the norm; the same by 16
    bits. Seconds of rounding, as bytes a second."""
    quick, refused = float8.kernels(torch.empty(0, device=device).device)
    out: dict = {"kernels refused": refused}
    for n, k in ((8192, 3584), (3584, 18944), (777, 1552)):
        x = (torch.randn(n, k, device=device) * torch.logspace(-9, 3, n, device=device)[:, None]).bfloat16()
        found, scales = float8.round_rows(x, None)
        plain, others = float8._rows(x, None)
        turned = float8.round_transposed(x, scales)
        out[f"{n} x {k}"] = {
            "scales": int((scales != others).sum()), "rows": int((found.float() != plain.float()).sum()),
            "transposed": int((turned.float().t() != found.float()).sum()),
        }  # fmt: skip
        if quick is not None:
            for name, action in (("rows", lambda x=x: float8.round_rows(x, None)),
                                 ("turned", lambda x=x, s=scales: float8.round_transposed(x, s))):  # fmt: skip
                out[f"{n} x {k}"][f"{name}, TB/s"] = 3 * n * k / median_of(action) / 1e12
    x = torch.randn(2048, 3584, device=device).bfloat16()
    w = (torch.randn(18944, 3584, device=device) * 0.02).bfloat16()
    g = torch.randn(2048, 18944, device=device).bfloat16()
    want, gx = x.double() @ w.double().t(), g.double() @ w.double()
    bad = x.clone()
    bad[5, 7], bad[9, 3], bad[11, 0] = math.nan, math.inf, -math.inf
    seen = float8.forward(bad, w)[0].isfinite().all(1)
    out["rows that stay finite though they should not, and the other way"] = [
        int(seen[[5, 9, 11]].sum()), int((~seen).sum()) - int((~seen[[5, 9, 11]]).sum())]  # fmt: skip
    y, scales = float8.forward(x, w)
    for name, got, exact in (
        ("y", y, want),
        ("dx", float8.backward(g, w, scales), gx),
        ("y, 16 bits", x @ w.t(), want),
    ):
        out[name] = float((got.double() - exact).norm() / exact.norm())
    return out


def median_of(action, n: int = 20) -> float:
    """Seconds, by the device's clock."""
    marks = [torch.cuda.Event(enable_timing=True) for _ in range(n + 1)]
    action()
    for mark in marks:
        mark.record()
        action()
    torch.cuda.synchronize()
    return sorted(a.elapsed_time(b) for a, b in itertools.pairwise(marks))[n // 2] / 1e3


def receive(connection) -> None:
    """The receiving process: opens the handles once, as vLLM's worker does, then answers with checksums."""
    sys.path.insert(0, str(Path(__file__).parents[3] / "vllm" / "extension"))
    from recipe_sdk.receive.handles import open_tensors

    told = connection.recv()
    tensors = open_tensors(told)
    names = [t["name"] for t in told["tensors"]]
    while connection.recv():
        torch.cuda.synchronize()
        connection.send({n: float(t.double().sum()) for n, t in zip(names, tensors, strict=True)})


def handles(directory: str) -> dict:
    """Plain weights, and merged adapters, seen from another process after each of two steps."""
    out = {}
    for name, change in {
        "full": {},
        "lora": {"lora": {"rank": 8}},
        "float32 to bfloat16": {"model": {"dtype": "float32"}},
    }.items():
        s = make(directory, "small", **change)
        b = batch(4096, ragged(16, 64, 300), 64)
        here, there = multiprocessing.get_context("spawn").Pipe()
        child = multiprocessing.get_context("spawn").Process(target=receive, args=(there,))
        child.start()
        shared, seen = Shared(), []
        dtype = "bfloat16" if "to" in name else None
        times = []
        for step in range(3):
            if step:
                s.train(b, step, Clock(s.ranks.device))
            start = time.perf_counter()
            answer = shared.refresh(
                partial(merged, s.policy), s.ranks.device, step, dtype, False, partial(parameters, s.policy)
            )  # fmt: skip
            times.append((time.perf_counter() - start) * 1e3)
            if step == 0:
                here.send(answer["handles"])
            here.send(True)
            theirs = here.recv()

            mine = {n: float(v.to(shared.tensors[n].dtype).double().sum()) for n, v in merged(s.policy)}
            assert theirs == mine, "the other process sees other weights"
            seen.append(sum(mine.values()))
        here.send(False)
        child.join(20)
        assert len(set(seen)) == 3, "the weights did not change"
        out[name] = {
            "tensors": answer["tensors"],
            "copied": answer["copied"],
            "bytes": answer["bytes"],
            "refresh_ms": times,
        }
    return out


def moments(_directory: str, device: str = "cuda", scale: int = 1 << 12, piece: int = 128 << 20) -> dict:
    """AdamW with its moments in the host's memory against torch's own: the same numbers bit for bit, while what is freed
    is used again at once; seconds of a step and bytes of both directions a second; "ahead" where moments come before the
    step and go after it."""
    shapes = [(37 * scale, 1000), (scale,), (scale, 4096), (3, 5, 7), (scale // 2 + 1, 3001), (17 * scale, 999)]
    out = {}
    for dtype, ahead in itertools.product((torch.float32, torch.bfloat16), (False, True)):
        first = [torch.nn.Parameter(torch.randn(s, device=device).to(dtype)) for s in shapes]
        second = [torch.nn.Parameter(p.detach().clone()) for p in first]
        fused = device == "cuda" or None
        a = offload.AdamW(first, 1e-3, piece=piece, fused=fused)
        b = torch.optim.AdamW(second, 1e-3, fused=fused)
        a.room = (lambda head: math.inf) if ahead else None
        times, came = [], 0
        for k in range(6):
            if device == "cuda":
                garbage = [torch.full_like(p, float("nan")) for p in first]  # in the place of what is prefetched
                del garbage
            a.finish()
            a.prefetch()
            came += len(a.prefetched)
            for p, q in zip(first, second, strict=True):
                p.grad = torch.randn(p.shape, device=device).to(dtype)
                q.grad = p.grad.clone()
            for optimizer in (b, a):
                optimizer.param_groups[0].update(lr=1e-3 / (k + 1), weight_decay=0.01 * k)
            b.step()
            if device == "cuda" and k > 2:  # before that a step begins while its gradients are still being made
                torch.cuda.synchronize()
            start = time.perf_counter()
            a.step()
            times.append(time.perf_counter() - start)
            for p in (*first, *second):
                p.grad = None
            garbage = [torch.full_like(p, float("nan")) for p in first]  # in the place of gradients and buffers
            del garbage
            assert all(torch.equal(p, q) for p, q in zip(first, second, strict=True)), f"weights differ after step {k}"
        a.finish()
        for p, q in zip(first, second, strict=True):
            for name, value in b.state[q].items():
                assert torch.equal(a.state[p][name].cpu(), value.cpu()), name
        size = optim.moments(first)
        out[f"{dtype}{' ahead' * ahead}"] = {
                           "pieces": len(a.pieces), "prefetched": came, "note": a.note, "step_s": times, "bytes": size,
                           "bytes_per_second": 2 * size / min(times)}  # fmt: skip
        del a, b, first, second, optimizer, p, q, value
    return out


def proof(directory: str) -> dict:
    """The fixed text's log-probabilities, 26 tokens, as `Trainer.logprobs` calculates them: the recorded pass gives the
    plain one's, also after a step; milliseconds of both, and what the graph's memory takes."""
    out = {}
    for name, change in {
        "bfloat16": {},
        "float32, arithmetic in bfloat16": {"model": {"dtype": "float32", "compute_dtype": "bfloat16"}},
    }.items():
        s = make(directory, "1.5B", **change)
        row = batches.whole_row(torch.arange(1, 27))
        recorded = Replay(s.policy, s.ranks.device, record)

        @torch.no_grad()
        def ask(by: Replay, policy: model.Policy = s.policy, row: batches.Row = row) -> torch.Tensor:
            def forward(r: batches.Row) -> torch.Tensor:
                with policy.uncompiled():
                    return policy(r).lp

            policy.eval()
            return by(row, forward)

        plain, gaps = Replay(s.policy, s.ranks.device, None), []
        ask(recorded)
        torch.cuda.empty_cache()
        before = torch.cuda.memory_reserved()
        ask(recorded)
        assert not recorded.refused and recorded.recorded is not None, recorded.refused
        torch.cuda.empty_cache()
        kept = torch.cuda.memory_reserved() - before
        for step in range(2):
            gaps.append(float((ask(recorded) - ask(plain)).abs().max()))
            s.train(batch(151936, [256] * 4, 64), step + 1, Clock(s.ranks.device))
        assert max(gaps) < LARGEST_GAP, gaps
        out[name] = {
            "gaps": gaps, "graph_mib": kept >> 20,
            "plain_ms": median_of(partial(ask, plain)) * 1e3, "recorded_ms": median_of(partial(ask, recorded)) * 1e3,
        }  # fmt: skip
        del s, recorded, plain
        torch.cuda.empty_cache()
    return out


def speed(directory: str) -> dict:
    """Tokens a second of whole training steps."""
    out = {}
    peak = next((v for k, v in PEAKS.items() if k in torch.cuda.get_device_name()), 989.0) * 1e12
    cases = {
        "64x1024": ([1024] * 64, {"row_tokens": 16384}),
        "64x1024 compiled": ([1024] * 64, {"row_tokens": 16384, "compile": True}),
        "ragged compiled": (ragged(64, 256, 768), {"row_tokens": 16384, "compile": True}),
        "64x1024 recomputed compiled": ([1024] * 64, {"row_tokens": 65536, "compile": True, "gradient_checkpointing": True}),
    }  # fmt: skip
    for name, (lengths, change) in cases.items():
        try:
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats()
            s = make(directory, "1.5B", model={**change, "head_chunk": 4096})
            b = batch(151936, lengths, 256)
            times, clock = [], None
            for k in range(5):
                clock = Clock(s.ranks.device)
                torch.cuda.synchronize()
                start = time.perf_counter()
                s.train(b, k, clock)
                torch.cuda.synchronize()
                times.append(time.perf_counter() - start)
            best = sorted(times[2:])[1]
            work = flops(s.policy.causal.config, s.count, b, True, 1)
            out[name] = {
                "tokens_per_second": b.total_tokens / best, "step_s": best, "warmup_s": times[0], "mfu": work / best / peak,
                "peak_gib": torch.cuda.max_memory_allocated() / 2**30, "phases": clock.metrics(),
            }  # fmt: skip
        except Exception as e:
            out[name] = {"error": f"{type(e).__name__}: {e}"[:300]}
        print(name, out[name], flush=True)
        s = None
    return out


def ranks(directory: str) -> dict:
    """The worker under torchrun on two GPUs against the same run on one: losses, then a resume of one from the other."""
    from recipe_sdk.testing import FakeAPI, make_group
    from transformers import Qwen2Config

    path = Path(directory) / "two"
    Qwen2Config(**SHAPES["small"], tie_word_embeddings=True).save_pretrained(path)
    out: dict = {}
    for name, extra in {
        "full": {}, "lora": {"lora": {"rank": 8}, "kl": {"coefficient": 0.01}}, "offload": {"optimizer": {"offload": True}},
    }.items():  # fmt: skip
        for world in (1, 2):
            api = FakeAPI(batch=lambda k: [make_group(10 * k + j, n=8) for j in range(4)])
            where = Path(directory) / f"{name}-{world}"
            where.mkdir()
            given = fields.merge({
                "model": {"path": str(path), "random_init": True, "dtype": "float32", "compute_dtype": "bfloat16",
                          "row_tokens": 128},
                "kl": {"coefficient": 0.0}, "data": {"url": api.url}, "optimizer": {"learning_rate": 1e-4},
                "correction": {"mismatch_limit": None}, "steps": 4, "save_every": 2,
                "checkpoint_dir": str(where / "c"), "events_file": str(where / "e"),
            }, extra)  # fmt: skip
            (where / "config.json").write_text(json.dumps(given))
            launch = ["-m", "worker"] if world == 1 else [
                "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "-m", "worker"]  # fmt: skip
            start = time.perf_counter()
            done = subprocess.run([sys.executable, *launch, "--config", str(where / "config.json")],
                                  capture_output=True, text=True, timeout=150)  # fmt: skip
            lines = [json.loads(x) for x in (where / "e").read_text().splitlines()]
            api.close()
            out[f"{name} {world}"] = {
                "status": done.returncode, "seconds": time.perf_counter() - start, "acked": api.acked,
                "losses": [x["metrics"]["loss/total"] for x in lines if x["type"] == "metric"],
                "grad_norms": [x["metrics"]["grad_norm"] for x in lines if x["type"] == "metric"],
                "error": done.stderr[-1500:] if done.returncode else "",
            }  # fmt: skip
    return out


def main() -> None:
    p = argparse.ArgumentParser()
    p.add_argument("out")
    p.add_argument("--only", default="kernels,head,float8,handles,moments,proof,speed")
    given = p.parse_args()
    result = {"torch": torch.__version__, "gpu": torch.cuda.get_device_name()}
    with tempfile.TemporaryDirectory() as directory:
        for name in given.only.split(","):
            try:
                known = {"kernels": kernels, "head": head, "float8": float8_layers, "handles": handles,
                         "moments": moments, "proof": proof, "speed": speed, "ranks": ranks}  # fmt: skip
                result[name] = known[name](directory)
            except Exception:
                result[name] = {"failed": traceback.format_exc()[-1500:]}
            print(name, json.dumps(result[name], indent=1), flush=True)
            Path(given.out).write_text(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
