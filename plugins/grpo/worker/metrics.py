"""What is reported each step. Names are stable: PROTOCOL.md lists them."""

from __future__ import annotations

import resource
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from . import aggregate, correction, objective
from .batch import Batch
from .correction import Mismatch

# dense 16-bit TFLOP/s by the name that torch gives
PEAKS = {"H200": 989.0, "H100": 989.0, "H800": 989.0, "H20": 148.0, "A100": 312.0, "A800": 312.0, "L40S": 362.0,
         "4090": 165.0, "B200": 2250.0}  # fmt: skip


class Clock:
    """Time per phase of one step. On a GPU it is the device's own, and nobody waits for it before it is asked for."""

    def __init__(self, device: torch.device):
        self.device = device
        self.seconds: dict[str, float] = {}
        self.last = ""  # the phase that ran last, for errors
        self.marks: list[tuple[str, torch.cuda.Event, torch.cuda.Event]] = []

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Adds the block's time to `name`."""
        self.last = name
        if self.device.type == "cuda":
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            begin.record()
            try:
                yield
            finally:
                end.record()
                self.marks.append((name, begin, end))
            return
        start = time.perf_counter()
        try:
            yield
        finally:
            self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - start

    def metrics(self) -> dict[str, float]:
        """time/<phase> in seconds."""
        for name, begin, end in self.marks:
            end.synchronize()
            self.seconds[name] = self.seconds.get(name, 0.0) + begin.elapsed_time(end) / 1e3
        self.marks.clear()
        return {f"time/{k}": v for k, v in self.seconds.items()}


def _spread(prefix: str, x: Tensor) -> dict[str, float]:
    if not len(x):
        return {}
    x = x.double()
    deviation = float(x.std()) if len(x) > 1 else 0.0
    return {f"{prefix}/mean": float(x.mean()), f"{prefix}/std": deviation, f"{prefix}/min": float(x.min()),
            f"{prefix}/max": float(x.max())}  # fmt: skip


def describe_batch(b: Batch) -> dict[str, float]:
    """Rewards and lengths, over all and per environment; zero-variance groups. A rollout has one reward."""
    score, group = b.score[b.first], b.group[b.first]
    valid = ~torch.isnan(score)
    out = _spread("reward", score[valid])
    whole = torch.tensor([float(len(t)) for t in b.tokens])
    out.update({f"length/response_{k.rsplit('/', 1)[1]}": v for k, v in _spread("x", b.length.double()).items()})
    out.update({"length/total_max": float(whole.max()), "length/total_mean": float(whole.mean())})
    flat_groups, by_env = 0, {}
    env_of = [g.env for g in b.groups]
    for k, env in enumerate(env_of):
        scores = score[(group == k) & valid]
        even = len(scores) > 1 and bool((scores == scores[0]).all())
        flat_groups += even
        entry = by_env.setdefault(env, {"scores": [], "groups": 0, "even": 0})
        entry["scores"].append(scores)
        entry["groups"] += 1
        entry["even"] += even
    for env, entry in sorted(by_env.items()):
        out.update(_spread(f"env/{env}/reward", torch.cat(entry["scores"])))
        out[f"env/{env}/groups"] = float(entry["groups"])
        out[f"env/{env}/zero_variance_groups"] = float(entry["even"])
    out.update({
        "groups/count": float(len(b.groups)), "groups/zero_variance": float(flat_groups),
        "sequences/count": float(b.n), "tokens/trained": float(b.size), "tokens/total": float(b.total_tokens),
    })  # fmt: skip
    return out


def describe_advantages(b: Batch, adv: Tensor) -> dict[str, float]:
    """The final advantages, over all and per environment."""
    out = _spread("adv", adv)
    env_of_token = b.group[b.seq]
    for env in sorted({g.env for g in b.groups}):
        members = torch.tensor([k for k, g in enumerate(b.groups) if g.env == env])
        out.update(_spread(f"env/{env}/adv", adv[torch.isin(env_of_token, members)]))
    return out


def describe_mismatch(m: Mismatch) -> dict[str, float]:
    """Sampler against trainer."""
    return {
        "mismatch/kl": m.kl, "mismatch/k1": m.k1, "mismatch/mean_abs": m.mean_abs, "mismatch/max_abs": m.max_abs,
        "mismatch/ess": m.ess, "mismatch/sequence_ess": m.sequence_ess, "mismatch/tokens": float(m.tokens),
    }  # fmt: skip


def describe_served(
    b: Batch, lp: Tensor, behavior: Tensor, version: int | None, window: slice,
    bounds: tuple[float | None, float | None],
) -> dict[str, float]:  # fmt: skip
    """The sampler's log-probabilities of real rollouts against the trainer's before its step, apart for fresh samples
    (of this very policy version: what is left is arithmetic, so a rise says that something is broken) and for stale
    ones (which differ by what was learned since). lp, behavior: the entries `window` of the batch's (N,) vectors."""
    group = b.group[b.seq[window]]
    known = torch.tensor([g.versions is not None for g in b.groups])
    fresh = known & torch.tensor([g.versions == (version, version) for g in b.groups])
    stale = known & ~fresh
    out: dict[str, float] = {}
    for name, members in (("fresh", fresh), ("stale", stale)):
        chosen = members[group].to(lp.device) & ~torch.isnan(behavior)
        n = int(chosen.sum())
        out[f"mismatch/{name}_tokens"] = float(n)
        if not n:
            continue
        m = correction.difference(lp[chosen], behavior[chosen], bounds)
        out.update({f"mismatch/{name}_{k}": v for k, v in m.items()})
    return out


def describe_plan(o: objective.ObjectiveOptions, plan: objective.Plan, lp: Tensor, entropy: Tensor) -> dict[str, float]:
    """An optimizer step's tokens, (N,) each: what the policy said of them, how far it is from others, and the weights
    that corrected them. Computed on the device and brought over in one piece."""
    x = lp.double()
    found = {"rejected/frac": 1 - plan.keep.double().mean(), "entropy": entropy.mean(), "logprob/mean": lp.mean()}
    signs = {"logprob/positive": plan.adv > 0, "logprob/negative": plan.adv < 0}
    found.update({k: torch.where(sign, x, 0.0).sum() / sign.sum() for k, sign in signs.items()})
    if plan.old is not None:
        found["kl/old"] = (plan.old - lp).nan_to_num(0.0).mean()
    if plan.ref is not None:
        found["kl/reference"] = aggregate.kl(lp, plan.ref, "k3").nan_to_num(0.0).mean()
    if o.importance != "none" and len(lp):
        weight = plan.weight
        if weight is None:
            weight = objective.weights(o, lp, plan.behavior, plan.seq, plan.n)
        found.update({"importance/mean": weight.mean(), "importance/max": weight.max()})
    values = torch.stack([v.double() for v in found.values()]).tolist()
    reported = dict(zip(found, values, strict=True))
    return {k: v for k, v in reported.items() if k not in signs or v == v}  # NaN: no token of that sign


def over_optimizer_steps(steps: list[dict[str, Any]]) -> dict[str, Any]:
    """A batch's metrics from those of its optimizer steps: the mean, of maxima the greatest."""
    counted = [s for s in steps if "loss/total" in s] or steps
    out: dict[str, Any] = {}
    for key in dict.fromkeys(k for s in counted for k in s):
        values = [s[key] for s in counted if key in s]
        worst = key.endswith(("max", "max_abs"))
        out[key] = max(values) if worst else sum(values) / len(values)
    out["optimizer_steps"] = float(sum("learning_rate" in s for s in steps))
    out["optimizer_skipped"] = float(sum("skipped" in s for s in steps))
    out["mismatch/mean_abs_first"] = steps[0].get("mismatch/mean_abs", 0.0)
    return out


def memory(device: torch.device) -> dict[str, float]:
    """Bytes: peak and present on the GPU, peak resident of the process."""
    scale = 1 if sys.platform == "darwin" else 1024
    out = {"memory/process_peak": float(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * scale)}
    if device.type == "cuda":
        out["memory/device_peak"] = float(torch.cuda.max_memory_allocated(device))
        out["memory/device_now"] = float(torch.cuda.memory_allocated(device))
        torch.cuda.reset_peak_memory_stats(device)
    return out


def flops(config: Any, parameters: int, b: Batch, trained_weights: bool, passes: int) -> float:
    """Model FLOPs of a step (recomputation not counted): matmuls of the body for every token, of the head for every
    scored token, causal attention. Adapters need no weight gradient of the frozen body: 4 instead of 6 a parameter."""
    hidden, layers, vocabulary = config.hidden_size, config.num_hidden_layers, config.vocab_size
    embedding = vocabulary * hidden * (1 if config.tie_word_embeddings else 2)
    per = 6 if trained_weights else 4
    lengths = [len(t) for t in b.tokens]
    attention = sum(6 * layers * hidden * n * n for n in lengths)
    return passes * (per * (parameters - embedding) * sum(lengths) + per * vocabulary * hidden * b.size + attention)


def peak(device: torch.device, given: float | None) -> float | None:
    """FLOP/s of the device, if known."""
    if given:
        return given * 1e12
    if device.type != "cuda":
        return None
    name = torch.cuda.get_device_name(device)
    return next((v * 1e12 for k, v in PEAKS.items() if k in name), None)
