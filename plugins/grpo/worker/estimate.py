"""From scores and configuration to the advantages that train."""

from __future__ import annotations

import torch
from recipe_sdk.errors import DataError
from torch import Tensor

from . import advantage, aggregate, metrics, override
from .batch import Batch
from .config import Config


def advantages(
    c: Config, b: Batch, name: str, normalizer: override.Normalizer, old: dict, ref: Tensor | None, beta: float
) -> tuple[Tensor, dict]:
    """Final advantages (N,) on the CPU in float64, the same on every rank, and what to report of them.

    old: log-probabilities under the old policy ("lp", "squared"), where the estimator or the KL in the reward
    needs them; beta: coefficient of that KL."""
    a = c.advantages
    penalty, facts = None, {}
    if beta and ref is not None:
        kind = aggregate.KL_ALIASES.get(c.kl.reward_estimator, c.kl.reward_estimator)
        kl = aggregate.kl(old["lp"], ref, kind).cpu().double()
        penalty = beta * kl
        facts = {"kl/reward": float(kl.mean()), "kl/reward_coefficient": beta}
    x = advantage.Inputs(
        b.score.double(), b.group, len(b.groups), b.length.double(), b.seq, penalty, value=b.value.double()
    )  # fmt: skip
    if name == "remax":
        x.baseline = _baselines(b)
    elif name == "optimal_token_baseline":
        x.lp, x.squared = old["lp"].cpu().double(), old["squared"].cpu().double()
    elif name == "gdpo":
        x.objectives, x.weights = _objectives(b, a.objective_weights)
    std = "none" if a.estimator == "dr_grpo" else a.std
    computed, counted = advantage.estimate(
        name, x, advantage.Options(std, a.epsilon, a.single or "zero", a.gamma, a.lam, a.zero_tail, a.length_penalty)
    )
    facts["adv/left_out"] = float((~counted).sum())
    options = override.OverrideOptions(
        a.use_advantages, a.fallback_to_grpo, a.override_scope, a.normalization, a.normalize_scope, a.clip
    )
    try:
        out = override.resolve(
            computed, b.sent.double(), b.has_sent, b.zeroed, b.seq, b.n, b.group,
            [x.label() for x in b.groups], options, normalizer, counted,
        )  # fmt: skip
    except override.MissingAdvantageError as e:
        raise DataError(str(e), ["Let the environment send advantages, or set advantages.fallback_to_grpo = true."],
                        "missing_advantages") from e  # fmt: skip
    return out.advantage, {**facts, **out.metrics, **metrics.describe_advantages(b, out.advantage)}


def _baselines(b: Batch) -> Tensor:
    missing = [g.label() for g in b.groups if g.baseline is None]
    if missing:
        raise DataError(f"remax needs group_overrides.reward_baseline (the greedy completion's reward); missing in "
                        f"{missing[0]}", ["Let the environment send it, or use another estimator."])  # fmt: skip
    return torch.tensor([g.baseline for g in b.groups], dtype=torch.float64)[b.group]


def _objectives(b: Batch, given: tuple[float, ...]) -> tuple[Tensor, Tensor]:
    weights = torch.tensor(given, dtype=torch.float64)
    rows = [c.objectives for g in b.groups for c in g.completions]
    bad = [
        g.label() for g in b.groups for c in g.completions if c.objectives is None or len(c.objectives) != len(weights)
    ]
    if bad:
        raise DataError(f"gdpo needs overrides[].rewards with {len(weights)} numbers; not so in {bad[0]}")
    return torch.tensor(rows, dtype=torch.float64), weights
