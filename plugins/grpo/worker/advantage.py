"""Advantage estimators as pure functions.

Sequence vectors (S,): score, group (index 0..G-1 of the sequence's group), length (trained tokens), valid (False for a
sequence without a score: its advantage is 0 and it is left out of every statistic). Token vectors (N,) are flat, `seq`
sorted ascending. Estimators return (S,) or (N,).
"""

from __future__ import annotations

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


@dataclass
class Groups:
    """The scores of a batch and who belongs together."""

    score: Tensor
    group: Tensor
    n_groups: int
    length: Tensor
    valid: Tensor
    single: str = "zero"  # a group of one: "zero" -> A = 0, "score" -> A as if mean 0 and deviation 1 (verl)

    def size(self) -> Tensor:
        """(S,) how many scored sequences share the sequence's group."""
        return seg_count(self.group[self.valid], self.n_groups, self.score.dtype)[self.group]

    def mean(self) -> Tensor:
        """(S,) mean score of the sequence's group; 0 for a group of one."""
        m = seg_mean(self.score[self.valid], self.group[self.valid], self.n_groups)[self.group]
        return torch.where(self.size() > 1, m, torch.zeros_like(m))

    def std(self, population: bool = False) -> Tensor:
        """(S,) standard deviation of the sequence's group; 1 for a group of one."""
        s = seg_std(self.score[self.valid], self.group[self.valid], self.n_groups, population)[self.group]
        return torch.where(self.size() > 1, s, torch.ones_like(s))

    def finish(self, a: Tensor) -> Tensor:
        """Zeroes sequences without a score and, unless single = "score", groups of one."""
        alone = self.size() <= 1
        zero = ~self.valid if self.single == "score" else (~self.valid | alone)
        return torch.where(zero, torch.zeros_like(a), a)


def grpo(g: Groups, std: str = "group", epsilon: float = 1e-6) -> Tensor:
    """(score - group mean) / (deviation + epsilon). std: group (verl), batch (TRL's scale_rewards=batch), none
    (Dr.GRPO, prime-rl), population (Atropos's example trainer: ddof 0, floor 1e-8 instead of epsilon)."""
    centred = g.score - g.mean()
    if std == "none":
        return g.finish(centred)
    if std == "population":
        return g.finish(centred / g.std(population=True).clamp(min=1e-8))
    if std == "batch":
        scores = g.score[g.valid]
        deviation = scores.std() if len(scores) > 1 else scores.new_zeros(())
        return g.finish(centred / (deviation + epsilon))
    return g.finish(centred / (g.std() + epsilon))


def grpo_passk(g: Groups, std: str = "group", epsilon: float = 1e-6) -> Tensor:
    """Only the best of a group: its lead over the second best (optionally over the deviation)."""
    a = torch.zeros_like(g.score)
    deviation = g.std()
    for k in range(g.n_groups):
        members = torch.nonzero((g.group == k) & g.valid).flatten()
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
    return g.finish(scale * (g.score - g.mean()))


def opo(g: Groups) -> Tensor:
    """Baseline weighted by response length."""
    weighted = seg_sum((g.score * g.length)[g.valid], g.group[g.valid], g.n_groups)
    total = seg_sum(g.length[g.valid], g.group[g.valid], g.n_groups).clamp(min=1e-8)
    baseline = torch.where(g.size() > 1, (weighted / total)[g.group], torch.zeros_like(g.score))
    return g.finish(g.score - baseline)


def gpg(g: Groups) -> Tensor:
    """alpha (score - mean), alpha = batch / number of non-zero scores."""
    scores = g.score[g.valid]
    alpha = len(scores) / max(int(torch.count_nonzero(scores)), 1)
    return g.finish(alpha * (g.score - g.mean()))


def gdpo(rewards: Tensor, weights: Tensor, g: Groups, epsilon: float = 1e-4) -> Tensor:
    """Several objectives (S, K; NaN = not given): each normalised in its group, summed, then normalised over the
    batch (TRL's multi_objective_aggregation = normalize_then_sum)."""
    total = torch.zeros_like(g.score)
    for k in range(rewards.shape[1]):
        column = rewards[:, k]
        part = Groups(column.nan_to_num(0.0), g.group, g.n_groups, g.length, ~torch.isnan(column))
        mean = seg_mean(part.score[part.valid], g.group[part.valid], g.n_groups)[g.group]
        std = seg_std(part.score[part.valid], g.group[part.valid], g.n_groups)[g.group]
        total = total + torch.where(part.valid, weights[k] * (column - mean) / (std + epsilon), 0.0).nan_to_num(0.0)
    scores = total[g.valid]
    std = scores.std() if len(scores) > 1 else scores.new_zeros(())
    return torch.where(g.valid, (total - scores.mean()) / (std + epsilon), torch.zeros_like(total))


def efficiency_shaped(g: Groups) -> Tensor:
    """Scores (S,) in which the best of a group gain up to a factor of two for being shorter than the group's other
    best ones (prime-rl's correctness-gated length penalty); groups whose best score is not positive are unchanged."""
    best = g.score.new_full((g.n_groups,), float("-inf"))
    best = best.scatter_reduce(0, g.group[g.valid], g.score[g.valid], "amax")[g.group]
    correct = (g.score >= best) & g.valid
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
