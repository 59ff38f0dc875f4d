"""Metrics of a batch's data, whatever the trainer makes of it: rewards, lengths, staleness."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

from .groups import Group


def describe_groups(groups: list[Group]) -> dict[str, float]:
    """Rewards and lengths, over all and per environment; groups whose scores are all equal teach nothing."""
    done = [c for g in groups for c in g.completions]
    out = _spread("reward", [x for g in groups for x in g.scores if not math.isnan(x)])
    responses = _spread("length/response", [float(len(c.positions)) for c in done])
    out.update({k.replace("response/", "response_"): v for k, v in responses.items()})
    whole = [float(len(c.tokens)) for c in done]
    out.update({"length/total_max": max(whole), "length/total_mean": sum(whole) / len(whole)})
    even = 0
    by_env: dict[str, list[tuple[list[float], bool]]] = {}
    for g in groups:
        scores = [x for x in g.scores if not math.isnan(x)]
        flat = len(scores) > 1 and len(set(scores)) == 1
        even += flat
        by_env.setdefault(g.env, []).append((scores, flat))
    for env, found in sorted(by_env.items()):
        out.update(_spread(f"env/{env}/reward", [s for scores, _ in found for s in scores]))
        out[f"env/{env}/groups"] = float(len(found))
        out[f"env/{env}/zero_variance_groups"] = float(sum(flat for _, flat in found))
    out.update({
        "groups/count": float(len(groups)), "groups/zero_variance": float(even), "sequences/count": float(len(done)),
        "tokens/trained": float(sum(len(c.positions) for c in done)), "tokens/total": sum(whole),
    })  # fmt: skip
    return out


def _spread(prefix: str, x: list[float]) -> dict[str, float]:
    if not x:
        return {}
    mean = math.fsum(x) / len(x)
    deviation = math.sqrt(math.fsum((v - mean) ** 2 for v in x) / (len(x) - 1)) if len(x) > 1 else 0.0
    return {f"{prefix}/mean": mean, f"{prefix}/std": deviation, f"{prefix}/min": min(x), f"{prefix}/max": max(x)}


def describe_staleness(versions: list[tuple[int, int] | None], now: int) -> dict[str, Any]:
    """Policy versions between sampling and training, per group: mean, max, histogram of the oldest tokens."""
    known = [now - v[0] for v in versions if v is not None]
    out: dict[str, Any] = {"staleness/unknown_groups": float(len(versions) - len(known))}
    if known:
        out.update({"staleness/mean": sum(known) / len(known), "staleness/max": float(max(known))})
        out["staleness/histogram"] = {str(k): n for k, n in sorted(Counter(known).items())}
        out["staleness/mixed_groups"] = float(sum(v is not None and v[0] != v[1] for v in versions))
    return out
