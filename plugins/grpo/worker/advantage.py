"""Advantage estimators as pure functions, and the one place that decides which sequences they see (`estimate`).

Sequence vectors (S,): score, group (index 0..G-1 of the sequence's group), length (trained tokens). Token vectors (N,)
are flat, `seq` sorted ascending. Estimators return (S,) or (N,) and never see a sequence without a score.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

import torch
from torch import Tensor

from .segments import seg_count, seg_index, seg_mean, seg_prefix_sum, seg_std, seg_suffix_sum, seg_sum

ESTIMATORS = (
    "grpo", "grpo_passk", "rloo", "reinforce_plus_plus", "reinforce_plus_plus_baseline", "opo", "gpg", "gae", "remax",
    "optimal_token_baseline", "gdpo",
)  # fmt: skip
ESTIMATOR_ALIASES = {
    "grpo_vectorized": "grpo", "rloo_vectorized": "rloo", "otb": "optimal_token_baseline",
    "tir_optimal_token_baseline": "optimal_token_baseline", "rf++": "reinforce_plus_plus",
    "rf++_baseline": "reinforce_plus_plus_baseline", "normalize_then_sum": "gdpo", "dr_grpo": "grpo",
}  # fmt: skip
STANDARD_DEVIATIONS = ("group", "batch", "none", "population")
# Estimators that do not compare a sequence with its group: a group of one is nothing special to them.
UNGROUPED = ("reinforce_plus_plus", "gae", "remax")


@dataclass
class Groups:
    """The scores of a batch and who belongs together. A group of one has mean 0 and deviation 1, as in verl."""

    score: Tensor
    group: Tensor
    n_groups: int
    length: Tensor

    def size(self) -> Tensor:
        """(S,) how many sequences share the sequence's group."""
        return seg_count(self.group, self.n_groups, self.score.dtype)[self.group]

    def mean(self) -> Tensor:
        """(S,) mean score of the sequence's group; 0 for a group of one."""
        m = seg_mean(self.score, self.group, self.n_groups)[self.group]
        return torch.where(self.size() > 1, m, torch.zeros_like(m))

    def std(self, population: bool = False) -> Tensor:
        """(S,) standard deviation of the sequence's group; 1 for a group of one."""
        s = seg_std(self.score, self.group, self.n_groups, population)[self.group]
        return torch.where(self.size() > 1, s, torch.ones_like(s))


def grpo(g: Groups, std: str = "group", epsilon: float = 1e-6) -> Tensor:
    """(score - group mean) / (deviation + epsilon). std: group (verl), batch (TRL's scale_rewards=batch), none
    (Dr.GRPO, prime-rl), population (Atropos's example trainer: ddof 0, floor 1e-8 instead of epsilon)."""
    centred = g.score - g.mean()
    if std == "none":
        return centred
    if std == "population":
        return centred / g.std(population=True).clamp(min=1e-8)
    if std == "batch":
        deviation = g.score.std() if len(g.score) > 1 else g.score.new_zeros(())
        return centred / (deviation + epsilon)
    return centred / (g.std() + epsilon)


def grpo_passk(g: Groups, std: str = "group", epsilon: float = 1e-6) -> Tensor:
    """Only the best of a group: its lead over the second best (optionally over the deviation)."""
    a = torch.zeros_like(g.score)
    deviation = g.std()
    for k in range(g.n_groups):
        members = torch.nonzero(g.group == k).flatten()
        if len(members) < 2:
            continue
        top = torch.topk(g.score[members], 2)
        best = members[top.indices[0]]
        lead = top.values[0] - top.values[1]
        a[best] = lead if std == "none" else lead / (deviation[best] + epsilon)
    return a


def rloo(g: Groups) -> Tensor:
    """Leave-one-out baseline: n/(n-1) (score - mean)."""
    n = g.size()
    scale = torch.where(n > 1, n / (n - 1).clamp(min=1), torch.ones_like(n))
    return scale * (g.score - g.mean())


def opo(g: Groups) -> Tensor:
    """Baseline weighted by response length."""
    weighted = seg_sum(g.score * g.length, g.group, g.n_groups)
    total = seg_sum(g.length, g.group, g.n_groups).clamp(min=1e-8)
    return g.score - torch.where(g.size() > 1, (weighted / total)[g.group], torch.zeros_like(g.score))


def gpg(g: Groups) -> Tensor:
    """alpha (score - mean), alpha = batch / number of non-zero scores."""
    alpha = len(g.score) / max(int(torch.count_nonzero(g.score)), 1)
    return alpha * (g.score - g.mean())


def gdpo(rewards: Tensor, weights: Tensor, g: Groups, epsilon: float = 1e-4) -> Tensor:
    """Several objectives (S, K; NaN = not given): each normalised in its group, summed, then normalised over the
    batch (TRL's multi_objective_aggregation = normalize_then_sum)."""
    total = torch.zeros_like(g.score)
    alone = g.size() <= 1
    for k in range(rewards.shape[1]):
        column = rewards[:, k]
        known = ~torch.isnan(column)
        mean = seg_mean(column[known], g.group[known], g.n_groups)[g.group]
        std = seg_std(column[known], g.group[known], g.n_groups)[g.group]
        mean, std = torch.where(alone, 0.0, mean), torch.where(alone, 1.0, std)
        total = total + torch.where(known, weights[k] * (column - mean) / (std + epsilon), 0.0).nan_to_num(0.0)
    std = total.std() if len(total) > 1 else total.new_zeros(())
    return (total - total.mean()) / (std + epsilon)


def efficiency_shaped(g: Groups) -> Tensor:
    """Scores (S,) in which the best of a group gain up to a factor of two for being shorter than the group's other
    best ones (prime-rl's correctness-gated length penalty); groups whose best score is not positive are unchanged."""
    best = g.score.new_full((g.n_groups,), float("-inf"))
    best = best.scatter_reduce(0, g.group, g.score, "amax")[g.group]
    correct = g.score >= best
    cost = seg_mean(g.length[correct], g.group[correct], g.n_groups)[g.group]
    usable = (best > 0) & (cost > 0)
    bonus = (1 - g.length / cost.clamp(min=1e-8)).clamp(0, 1) * correct
    return torch.where(usable, g.score * (1 + bonus), g.score)


def whiten(x: Tensor) -> Tensor:
    """(N,) to mean 0 and deviation 1 (ddof 1, epsilon 1e-8 inside the root)."""
    if len(x) < 2:
        return torch.zeros_like(x)
    return (x - x.mean()) * torch.rsqrt(x.var() + 1e-8)


def reinforce_plus_plus(reward: Tensor, seq: Tensor, n: int, gamma: float = 1.0) -> Tensor:
    """(N,) whitened discounted returns of the token rewards."""
    return whiten(discounted(reward, seq, n, gamma))


def discounted(x: Tensor, seq: Tensor, n: int, factor: float) -> Tensor:
    """(N,) y_t = x_t + factor * y_{t+1} within each sequence."""
    if factor == 1.0:
        return seg_suffix_sum(x, seq, n)
    out, running, previous = torch.empty_like(x), 0.0, -1
    for t in range(len(x) - 1, -1, -1):
        owner = int(seq[t])
        running = float(x[t]) + (factor * running if owner == previous else 0.0)
        out[t], previous = running, owner
    return out


def gae(reward: Tensor, value: Tensor, seq: Tensor, n: int, gamma: float = 1.0, lam: float = 1.0) -> Tensor:
    """(N,) whitened generalised advantage; value (N,) is 0 in a critic-free run."""
    following = torch.cat([value[1:], value.new_zeros(1)]) if len(value) else value
    last = torch.cat([seq[1:] != seq[:-1], seq.new_ones(1, dtype=torch.bool)]) if len(seq) else seq.bool()
    delta = reward + gamma * torch.where(last, torch.zeros_like(following), following) - value
    return whiten(discounted(delta, seq, n, gamma * lam))


def remax(reward: Tensor, baseline: Tensor, seq: Tensor, n: int) -> Tensor:
    """(N,) return-to-go minus the greedy completion's reward, baseline (S,)."""
    return seg_suffix_sum(reward, seq, n) - baseline[seq]


def optimal_token_baseline(
    reward: Tensor, lp: Tensor, sum_squared: Tensor, seq: Tensor, n: int, group: Tensor, n_groups: int,
    weight: Tensor | None = None, zero_tail: bool = False, epsilon: float = 1e-8,
) -> Tensor:  # fmt: skip
    """(N,) return-to-go minus a baseline for every step, which weighs the group's returns by the accumulated variance
    proxy W_t = sum over j <= t of 1 - 2 pi_j + sum(pi^2) (importance weights squared when given). zero_tail: no
    baseline where only one sequence of the group is still running."""
    returns = seg_suffix_sum(reward, seq, n)
    w = 1 - 2 * torch.exp(lp) + sum_squared
    if weight is not None:
        w = w * weight * weight
    w = seg_prefix_sum(w, seq, n)
    step = seg_index(seq, n)
    width = int(step.max()) + 1 if len(step) else 1
    cell = group[seq] * width + step
    top, bottom = seg_sum(returns * w, cell, n_groups * width), seg_sum(w, cell, n_groups * width)
    baseline = (top / (bottom + epsilon))[cell]
    running = seg_count(cell, n_groups * width, w.dtype)[cell]
    members = seg_count(group[torch.unique(seq)], n_groups, w.dtype)[group[seq]] if len(seq) else w
    alone = (running <= 1) if zero_tail else (members <= 1)
    return returns - torch.where(alone, torch.zeros_like(baseline), baseline)


def token_rewards(score: Tensor, seq: Tensor, n: int, penalty: Tensor | None = None) -> Tensor:
    """(N,) the score on each sequence's last trained token, minus `penalty` (N,) (KL in the reward)."""
    out = score.new_zeros(len(seq))
    if len(seq):
        last = torch.cat([seq[1:] != seq[:-1], seq.new_ones(1, dtype=torch.bool)])
        out[last] = score[seq[last]]
    return out if penalty is None else out - penalty


@dataclass
class Inputs:
    """What estimators may read of a batch of S sequences and N trained tokens. score is NaN where the environment gave
    none. Optional: penalty (N,) the KL in the reward; value (N,); lp, squared (N,) of optimal_token_baseline; baseline
    (S,) of remax; objectives (S, K) and their weights (K,) of gdpo."""

    score: Tensor
    group: Tensor
    n_groups: int
    length: Tensor
    seq: Tensor
    penalty: Tensor | None = None
    value: Tensor | None = None
    lp: Tensor | None = None
    squared: Tensor | None = None
    baseline: Tensor | None = None
    objectives: Tensor | None = None
    weights: Tensor | None = None

    def only(self, keep: Tensor) -> Inputs:
        """The same batch without the sequences where keep (S,) is False."""
        tokens = keep[self.seq]
        place = keep.long().cumsum(0) - 1
        cut = lambda x, mask: None if x is None else x[mask]  # noqa: E731
        return dataclasses.replace(
            self, score=self.score[keep], group=self.group[keep], length=self.length[keep],
            seq=place[self.seq[tokens]], penalty=cut(self.penalty, tokens), value=cut(self.value, tokens),
            lp=cut(self.lp, tokens), squared=cut(self.squared, tokens), baseline=cut(self.baseline, keep),
            objectives=cut(self.objectives, keep),
        )  # fmt: skip


@dataclass(frozen=True)
class Options:
    """Constants of the estimators."""

    std: str = "group"
    epsilon: float = 1e-6
    single: str = "zero"  # a group of one: "zero" = advantage 0, "score" = as if mean 0 and deviation 1 (verl)
    gamma: float = 1.0
    lam: float = 1.0
    zero_tail: bool = False
    length_penalty: bool = False


def counted(name: str, x: Inputs, single: str) -> Tensor:
    """(S,) bool: the sequences that take part. One without a score never does; nor does one that is alone among the
    scored ones of its group where the estimator compares within groups, unless single = "score"."""
    scored = ~torch.isnan(x.score)
    if name == "gdpo" and x.objectives is not None:
        scored &= ~torch.isnan(x.objectives).all(1)
    if name in UNGROUPED or single == "score":
        return scored
    return scored & (seg_count(x.group[scored], x.n_groups, torch.float64)[x.group] > 1)


def estimate(name: str, x: Inputs, o: Options) -> tuple[Tensor, Tensor]:
    """Advantages (N,) of the estimator `name` (aliases resolved), and which sequences (S,) took part. The others have
    advantage 0 and are in no statistic: the estimator does not see them."""
    part = counted(name, x, o.single)
    out = torch.zeros(len(x.seq), dtype=x.score.dtype)
    if bool(part.any()):
        out[part[x.seq]] = _estimate(name, x.only(part), o)
    return out, part


def _estimate(name: str, x: Inputs, o: Options) -> Tensor:
    """(N,) for a batch in which every sequence takes part."""
    g, n = Groups(x.score, x.group, x.n_groups, x.length), len(x.score)
    if o.length_penalty:  # before the KL, which makes every score different: then no two would be a group's best
        g.score = efficiency_shaped(g)
    reward = token_rewards(g.score, x.seq, n, x.penalty)
    if x.penalty is not None:
        g.score = g.score - seg_sum(x.penalty, x.seq, n)
    if name == "grpo":
        return grpo(g, o.std, o.epsilon)[x.seq]
    if name == "grpo_passk":
        return grpo_passk(g, o.std, o.epsilon)[x.seq]
    if name in ("rloo", "opo", "gpg"):
        return {"rloo": rloo, "opo": opo, "gpg": gpg}[name](g)[x.seq]
    if name == "reinforce_plus_plus_baseline":
        return whiten((g.score - g.mean())[x.seq])
    if name == "reinforce_plus_plus":
        return reinforce_plus_plus(reward, x.seq, n, o.gamma)
    if name == "gae":
        return gae(reward, x.value, x.seq, n, o.gamma, o.lam)
    if name == "remax":
        return remax(reward, x.baseline, x.seq, n)
    if name == "optimal_token_baseline":
        return optimal_token_baseline(
            reward, x.lp, x.squared, x.seq, n, x.group, x.n_groups, zero_tail=o.zero_tail
        )  # fmt: skip
    if name == "gdpo":
        return gdpo(x.objectives, x.weights, g, o.epsilon)[x.seq]
    raise ValueError(f"estimator {name!r} is unknown; expected one of {', '.join(ESTIMATORS)}")
