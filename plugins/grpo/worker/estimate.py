"""From scores and configuration to the advantages that train."""

from __future__ import annotations

import torch
from torch import Tensor

from . import advantage, aggregate, metrics, override
from .batch import Batch
from .config import Config
from .errors import DataError
from .segments import seg_sum


def advantages(
    c: Config, b: Batch, name: str, normalizer: override.Normalizer, old: dict, ref: Tensor | None, beta: float
) -> tuple[Tensor, dict]:
    """Final advantages (N,) on the CPU in float64, the same on every rank, and what to report of them.

    old: log-probabilities under the old policy ("lp", "squared"), where the estimator or the KL in the reward
    needs them; beta: coefficient of that KL."""
    a = c.advantages
    valid = ~torch.isnan(b.score)
    penalty, facts = None, {}
    if beta and ref is not None:
        kind = aggregate.KL_ALIASES.get(c.kl.reward_estimator, c.kl.reward_estimator)
        kl = aggregate.kl(old["lp"], ref, kind).cpu().double()
        penalty = beta * kl
        facts = {"kl/reward": float(kl.mean()), "kl/reward_coefficient": beta}
    g = advantage.Groups(
        b.score.nan_to_num(0.0).double(), b.group, len(b.groups), b.length.double(), valid, a.single
    )  # fmt: skip
    if a.length_penalty:  # before the KL, which makes every score different: then no two would be a group's best
        g.score = advantage.efficiency_shaped(g)
    reward = advantage.token_rewards(g.score, b.seq, b.n, penalty)
    if penalty is not None:
        g.score = g.score - seg_sum(penalty, b.seq, b.n)
    std = "none" if a.estimator == "dr_grpo" else a.std
    if name == "grpo":
        computed = advantage.grpo(g, std, a.epsilon)[b.seq]
    elif name == "grpo_passk":
        computed = advantage.grpo_passk(g, std, a.epsilon)[b.seq]
    elif name in ("rloo", "opo", "gpg"):
        computed = getattr(advantage, name)(g)[b.seq]
    elif name == "reinforce_plus_plus_baseline":
        computed = advantage.whiten((g.finish(g.score - g.mean()))[b.seq])
    elif name == "reinforce_plus_plus":
        computed = advantage.reinforce_plus_plus(reward, b.seq, b.n, a.gamma)
    elif name == "gae":
        computed = advantage.gae(reward, b.value.double(), b.seq, b.n, a.gamma, a.lam)
    elif name == "remax":
        computed = advantage.remax(reward, _baselines(b), b.seq, b.n)
    elif name == "optimal_token_baseline":
        lp, squared = old["lp"].cpu().double(), old["squared"].cpu().double()
        computed = advantage.optimal_token_baseline(
            reward, lp, squared, b.seq, b.n, b.group, len(b.groups), zero_tail=a.zero_tail
        )
    else:
        computed = advantage.gdpo(*_objectives(b, a.objective_weights), g, a.epsilon)[b.seq]
    options = override.OverrideOptions(
        a.use_advantages, a.fallback_to_grpo, a.override_scope, a.normalization, a.normalize_scope, a.clip
    )
    try:
        out = override.resolve(
            computed, b.sent.double(), b.has_sent, b.zeroed, b.seq, b.n, b.group,
            [x.label() for x in b.groups], options, normalizer,
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
