"""From scores and configuration to the advantages that train."""

from __future__ import annotations

import torch
from recipe_sdk.errors import DataError
from torch import Tensor

from . import advantage, aggregate, environment_advantages, metrics
from .batch import Batch
from .config import Config, estimator_options, estimator_spec
from .environment_advantages import MissingAdvantageError, Normalizer, Rules
from .segments import seg_sum


def advantages(
    c: Config, b: Batch, normalizer: Normalizer, old: dict[str, Tensor], ref: Tensor | None, beta: float
) -> tuple[Tensor, dict[str, float]]:
    """Final advantages (N,) on the CPU in float64, the same on every rank, and what to report of them.

    old: log-probabilities under the old policy ("lp", "squared"), where the estimator or the KL in the reward
    needs them; beta: coefficient of that KL."""
    a, spec = c.advantages, estimator_spec(c)
    penalty, facts = None, {}
    if beta and ref is not None:
        kind = aggregate.KL_ALIASES.get(c.kl.reward_estimator, c.kl.reward_estimator)
        kl = aggregate.kl(old["lp"], ref, kind).cpu().double()
        penalty = beta * kl
        facts = {"kl/reward": float(kl.mean()), "kl/reward_coefficient": beta}
    # The parts of a rollout are one sequence to an estimator: they count once in every statistic of the group.
    first, of_token = b.first, b.rollout[b.seq]
    length = seg_sum(b.length.double(), b.rollout, b.rollouts)
    x = advantage.Inputs(
        b.score[first].double(), b.group[first], len(b.groups), length, of_token, penalty, value=b.value.double()
    )  # fmt: skip
    if "baseline" in spec.needs:
        x.baseline = _baselines(b, spec.name)
    if "old" in spec.needs:
        x.lp, x.squared = old["lp"].cpu().double(), old["squared"].cpu().double()
    if "objectives" in spec.needs:
        x.objectives, x.weights = _objectives(b, a.objective_weights, spec.name)
    computed, counted = advantage.estimate(spec, x, estimator_options(c))
    facts["adv/left_out"] = float((~counted).sum())
    counted = counted[b.rollout]
    rules = Rules(a.use_advantages, a.fallback_to_grpo, a.override_scope, a.normalization, a.normalize_scope, a.clip)
    try:
        out = environment_advantages.resolve(
            computed, b.sent.double(), b.has_sent, b.zeroed, b.seq, b.n, b.group,
            [g.label() for g in b.groups], rules, normalizer, counted,
        )  # fmt: skip
    except MissingAdvantageError as e:
        raise DataError(str(e), ["Let the environment send advantages, or set advantages.fallback_to_grpo = true."],
                        "missing_advantages") from e  # fmt: skip
    return out.advantage, {**facts, **out.metrics, **metrics.describe_advantages(b, out.advantage)}


def _baselines(b: Batch, name: str) -> Tensor:
    missing = [g.label() for g in b.groups if g.baseline is None]
    if missing:
        raise DataError(f"{name} needs group_overrides.reward_baseline (the greedy completion's reward); missing in "
                        f"{missing[0]}", ["Let the environment send it, or use another estimator."])  # fmt: skip
    return torch.tensor([g.baseline for g in b.groups], dtype=torch.float64)[b.group[b.first]]


def _objectives(b: Batch, given: tuple[float, ...], name: str) -> tuple[Tensor, Tensor]:
    weights = torch.tensor(given, dtype=torch.float64)
    done = [c for g in b.groups for c in g.completions]
    rows = [done[i].objectives for i in b.first.tolist()]
    bad = [
        g.label() for g in b.groups for c in g.completions if c.objectives is None or len(c.objectives) != len(weights)
    ]
    if bad:
        raise DataError(f"{name} needs overrides[].rewards with {len(weights)} numbers; not so in {bad[0]}")
    return torch.tensor(rows, dtype=torch.float64), weights
