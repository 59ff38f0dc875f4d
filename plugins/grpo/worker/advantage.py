"""Advantage estimators as pure functions, and the one place that decides which sequences they see (`estimate`).

Each is one function (inputs, options) -> advantages; its decorator states what others must know of it
(registry.estimator). An estimator returns (S,) one a sequence or (N,) one a token, and never sees a sequence without a
score. docs/losses.md says how to write one.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

import torch
from torch import Tensor

from .registry import Alias, EstimatorSpec, Registry, estimator
from .segments import seg_count, seg_index, seg_mean, seg_prefix_sum, seg_std, seg_suffix_sum, seg_sum

STANDARD_DEVIATIONS = ("group", "batch", "none", "population")


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


@dataclass
class Inputs:
    """What an estimator sees of a batch of S sequences in n_groups groups, with N trained tokens. The sequences of one
    rollout stand here as one: the tokens of all of them, in their order.

    score      (S,) the environment's, less the sequence's KL penalty where there is one
    group      (S,) which group the sequence belongs to
    length     (S,) its trained tokens
    seq        (N,) which sequence the token belongs to, ascending
    reward     (N,) the score on each sequence's last token, less the token's KL penalty
    value      (N,) critic values that the environment sent, 0 where none
    lp         (N,) log-probability under the policy before the step, squared (N,) the sum of the squared probabilities
               of all tokens there: for estimators that need "old"
    baseline   (S,) for those that need "baseline"
    objectives (S, K) and weights (K,): for those that need "objectives"
    penalty    (N,) the KL in the reward, already in score and reward
    """

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
    reward: Tensor | None = None

    @property
    def n(self) -> int:
        """Sequences."""
        return len(self.score)

    def size(self) -> Tensor:
        """(S,) how many sequences share the sequence's group."""
        return seg_count(self.group, self.n_groups, self.score.dtype)[self.group]

    def mean(self) -> Tensor:
        """(S,) mean score of the sequence's group; 0 for a group of one."""
        m = self._least() + seg_mean(self._above(), self.group, self.n_groups)[self.group]
        return torch.where(self.size() > 1, m, torch.zeros_like(m))

    def std(self, population: bool = False) -> Tensor:
        """(S,) standard deviation of the sequence's group; 1 for a group of one."""
        s = seg_std(self._above(), self.group, self.n_groups, population)[self.group]
        return torch.where(self.size() > 1, s, torch.ones_like(s))

    def _least(self) -> Tensor:
        """(S,) the lowest score of the sequence's group."""
        least = self.score.new_full((self.n_groups,), torch.inf)
        return least.scatter_reduce(0, self.group, self.score, "amin")[self.group]

    def _above(self) -> Tensor:
        """(S,) scores from the group's lowest on: their mean is exact where all are equal. That of three times 1e14 / 3
        is not, and what it is off by would be divided by a deviation of the same size."""
        return self.score - self._least()

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


@estimator("grpo", uses=("std", "epsilon"), aliases=("grpo_vectorized", Alias("dr_grpo", defaults={"std": "none"})))
def grpo(x: Inputs, o: Options) -> Tensor:
    """(score - group mean) / (deviation + epsilon). std: group (verl), batch (TRL's scale_rewards=batch), none
    (Dr.GRPO, prime-rl), population (Atropos's example trainer: ddof 0, floor 1e-8 instead of epsilon)."""
    centred = x.score - x.mean()
    if o.std == "none":
        return centred
    if o.std == "population":
        return centred / x.std(population=True).clamp(min=1e-8)
    if o.std == "batch":
        deviation = x.score.std() if x.n > 1 else x.score.new_zeros(())
        return centred / (deviation + o.epsilon)
    return centred / (x.std() + o.epsilon)


@estimator("grpo_passk", least=2, uses=("std", "epsilon"))
def grpo_passk(x: Inputs, o: Options) -> Tensor:
    """Only the best of a group: its lead over the second best (optionally over the deviation)."""
    a = torch.zeros_like(x.score)
    deviation = x.std()
    for k in range(x.n_groups):
        members = torch.nonzero(x.group == k).flatten()
        if len(members) < 2:
            continue
        top = torch.topk(x.score[members], 2)
        best = members[top.indices[0]]
        lead = top.values[0] - top.values[1]
        a[best] = lead if o.std == "none" else lead / (deviation[best] + o.epsilon)
    return a


@estimator("rloo", uses=(), aliases=("rloo_vectorized",))
def rloo(x: Inputs, o: Options) -> Tensor:
    """Leave-one-out baseline: n/(n-1) (score - mean)."""
    n = x.size()
    scale = torch.where(n > 1, n / (n - 1).clamp(min=1), torch.ones_like(n))
    return scale * (x.score - x.mean())


@estimator("reinforce_plus_plus", per="token", grouped=False, uses=("gamma",), aliases=("rf++",))
def reinforce_plus_plus(x: Inputs, o: Options) -> Tensor:
    """(N,) whitened discounted returns of the token rewards."""
    return whiten(discounted(x.reward, x.seq, x.n, o.gamma))


@estimator("reinforce_plus_plus_baseline", per="token", uses=(), aliases=("rf++_baseline",))
def reinforce_plus_plus_baseline(x: Inputs, o: Options) -> Tensor:
    """(N,) score less the group's mean, whitened over the tokens of the batch."""
    return whiten((x.score - x.mean())[x.seq])


@estimator("opo", uses=())
def opo(x: Inputs, o: Options) -> Tensor:
    """Baseline weighted by response length."""
    weighted = seg_sum(x.score * x.length, x.group, x.n_groups)
    total = seg_sum(x.length, x.group, x.n_groups).clamp(min=1e-8)
    return x.score - torch.where(x.size() > 1, (weighted / total)[x.group], torch.zeros_like(x.score))


@estimator("gpg", uses=())
def gpg(x: Inputs, o: Options) -> Tensor:
    """alpha (score - mean), alpha = batch / number of non-zero scores."""
    alpha = x.n / max(int(torch.count_nonzero(x.score)), 1)
    return alpha * (x.score - x.mean())


@estimator("gae", per="token", grouped=False, uses=("gamma", "lam"))
def gae(x: Inputs, o: Options) -> Tensor:
    """(N,) whitened generalized advantage; value (N,) is 0 in a critic-free run."""
    value, seq = x.value, x.seq
    following = torch.cat([value[1:], value.new_zeros(1)]) if len(value) else value
    last = torch.cat([seq[1:] != seq[:-1], seq.new_ones(1, dtype=torch.bool)]) if len(seq) else seq.bool()
    delta = x.reward + o.gamma * torch.where(last, torch.zeros_like(following), following) - value
    return whiten(discounted(delta, seq, x.n, o.gamma * o.lam))


@estimator("remax", per="token", grouped=False, needs=("baseline",), uses=())
def remax(x: Inputs, o: Options) -> Tensor:
    """(N,) return-to-go minus the greedy completion's reward."""
    return seg_suffix_sum(x.reward, x.seq, x.n) - x.baseline[x.seq]


@estimator("optimal_token_baseline", per="token", needs=("old",), uses=("zero_tail",),
           aliases=("otb", "tir_optimal_token_baseline"))  # fmt: skip
def optimal_token_baseline(x: Inputs, o: Options) -> Tensor:
    """(N,) return-to-go minus a baseline for every step, which weighs the group's returns by the accumulated variance
    proxy W_t = sum over j <= t of 1 - 2 pi_j + sum(pi^2). zero_tail: no baseline where only one sequence of the group
    is still running."""
    returns = seg_suffix_sum(x.reward, x.seq, x.n)
    w = seg_prefix_sum(1 - 2 * torch.exp(x.lp) + x.squared, x.seq, x.n)
    step = seg_index(x.seq, x.n)
    width = int(step.max()) + 1 if len(step) else 1
    cell = x.group[x.seq] * width + step
    top, bottom = seg_sum(returns * w, cell, x.n_groups * width), seg_sum(w, cell, x.n_groups * width)
    baseline = (top / (bottom + 1e-8))[cell]
    running = seg_count(cell, x.n_groups * width, w.dtype)[cell]
    members = seg_count(x.group[torch.unique(x.seq)], x.n_groups, w.dtype)[x.group[x.seq]] if len(x.seq) else w
    alone = (running <= 1) if o.zero_tail else (members <= 1)
    return returns - torch.where(alone, torch.zeros_like(baseline), baseline)


@estimator("gdpo", needs=("objectives",), uses=("epsilon",), aliases=("normalize_then_sum",))
def gdpo(x: Inputs, o: Options) -> Tensor:
    """Several objectives (S, K; NaN = not given): each normalized in its group, summed, then normalized over the
    batch (TRL's multi_objective_aggregation = normalize_then_sum)."""
    total = torch.zeros_like(x.score)
    alone = x.size() <= 1
    for k in range(x.objectives.shape[1]):
        column = x.objectives[:, k]
        known = ~torch.isnan(column)
        mean = seg_mean(column[known], x.group[known], x.n_groups)[x.group]
        std = seg_std(column[known], x.group[known], x.n_groups)[x.group]
        mean, std = torch.where(alone, 0.0, mean), torch.where(alone, 1.0, std)
        total = total + torch.where(known, x.weights[k] * (column - mean) / (std + o.epsilon), 0.0).nan_to_num(0.0)
    std = total.std() if len(total) > 1 else total.new_zeros(())
    return (total - total.mean()) / (std + o.epsilon)


def efficiency_shaped(x: Inputs) -> Tensor:
    """Scores (S,) in which the best of a group gain up to a factor of two for being shorter than the group's other
    best ones (prime-rl's correctness-gated length penalty); groups whose best score is not positive are unchanged."""
    best = x.score.new_full((x.n_groups,), float("-inf"))
    best = best.scatter_reduce(0, x.group, x.score, "amax")[x.group]
    correct = x.score >= best
    cost = seg_mean(x.length[correct], x.group[correct], x.n_groups)[x.group]
    usable = (best > 0) & (cost > 0)
    bonus = (1 - x.length / cost.clamp(min=1e-8)).clamp(0, 1) * correct
    return torch.where(usable, x.score * (1 + bonus), x.score)


def whiten(x: Tensor) -> Tensor:
    """(N,) to mean 0 and deviation 1 (ddof 1, epsilon 1e-8 inside the root)."""
    if len(x) < 2:
        return torch.zeros_like(x)
    return (x - x.mean()) * torch.rsqrt(x.var() + 1e-8)


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


def token_rewards(score: Tensor, seq: Tensor, n: int, penalty: Tensor | None = None) -> Tensor:
    """(N,) the score on each sequence's last trained token, minus `penalty` (N,) (KL in the reward)."""
    out = score.new_zeros(len(seq))
    if len(seq):
        last = torch.cat([seq[1:] != seq[:-1], seq.new_ones(1, dtype=torch.bool)])
        out[last] = score[seq[last]]
    return out if penalty is None else out - penalty


ESTIMATORS = Registry("estimator", globals())


def counted(spec: EstimatorSpec, x: Inputs, single: str) -> Tensor:
    """(S,) bool: the sequences that take part. One without a score never does; nor does one that is alone among the
    scored ones of its group where the estimator compares within groups, unless single = "score"."""
    scored = ~torch.isnan(x.score)
    if "objectives" in spec.needs and x.objectives is not None:
        scored &= ~torch.isnan(x.objectives).all(1)
    if not spec.grouped or single == "score":
        return scored
    return scored & (seg_count(x.group[scored], x.n_groups, torch.float64)[x.group] > 1)


def estimate(spec: EstimatorSpec, x: Inputs, o: Options) -> tuple[Tensor, Tensor]:
    """Advantages (N,) by an estimator, and which sequences (S,) took part. The others have advantage 0 and are in no
    statistic: the estimator does not see them."""
    part = counted(spec, x, o.single)
    out = torch.zeros(len(x.seq), dtype=x.score.dtype)
    if bool(part.any()):
        out[part[x.seq]] = _estimate(spec, x.only(part), o)
    return out, part


def _estimate(spec: EstimatorSpec, x: Inputs, o: Options) -> Tensor:
    """(N,) for a batch in which every sequence takes part."""
    if o.length_penalty:  # before the KL, which makes every score different: then no two would be a group's best
        x.score = efficiency_shaped(x)
    x.reward = token_rewards(x.score, x.seq, x.n, x.penalty)
    if x.penalty is not None:
        x.score = x.score - seg_sum(x.penalty, x.seq, x.n)
    out = spec.function(x, o)
    expected = x.seq.shape if spec.per == "token" else x.score.shape
    if not isinstance(out, Tensor) or out.shape != expected:
        got = f"shape {tuple(out.shape)}" if isinstance(out, Tensor) else type(out).__name__
        raise ValueError(
            f"estimator {spec.name!r}: expected a tensor with one advantage a {spec.per}, shape {tuple(expected)}; "
            f"got {got}"
        )
    if not bool(torch.isfinite(out).all()):
        wrong = int((~torch.isfinite(out)).sum())
        raise ValueError(
            f"estimator {spec.name!r}: {wrong} of {len(out)} advantages are NaN or infinite, "
            "and so would be the gradient of the whole batch. Is something divided by 0, such as by the deviation of a "
            "group of equal scores?"
        )
    return out if spec.per == "token" else out[x.seq]
