"""The whole objective of one optimizer step: policy loss x importance weight, KL, entropy, rejection, aggregation.

`prepare` looks at the complete optimizer batch once and fixes everything that a token needs to know about the others
(coefficients, masks, weights, selections). `micro_loss` then sums any part of the batch, so that micro-batches and
ranks may split it as they like.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

from . import aggregate, correction
from .config import Config, importance_of, length_norm, resolved
from .loss import BEHAVIOR_LOSSES, PROBABILITY_GAPS, LossOptions, Terms, log_ratio, policy_loss


@dataclass(frozen=True)
class ObjectiveOptions:
    """What is minimised; defaults are verl's GRPO."""

    loss: LossOptions = field(default_factory=LossOptions)
    aggregation: str = "token-mean"
    length_norm: float = 1.0  # constant of the -norm aggregations
    kl_coefficient: float = 0.001
    kl_estimator: str = "k3"
    kl_bias_correction: bool = False  # TRL's use_bias_correction_kl: multiply the KL by the ratio
    entropy_coefficient: float = 0.0
    old_policy: str = "trainer"  # or "rollout": ratios against the sampler (bypass mode)
    importance: str = "none"  # none | token | sequence
    importance_lenient: bool = False  # tokens without the sampler's log-probability have weight 1
    importance_mode: str = "truncate"
    importance_high: float | None = 2.0
    importance_low: float | None = None
    importance_normalize: bool = False
    rejections: tuple[correction.Rejection, ...] = ()
    rejection_denominator: str = "kept"  # or "original": rejection must not inflate the gradient (AReaL)
    off_policy_threshold: float | None = None
    off_policy_against: str = "rollout"  # or "trainer" (slime)
    top_entropy: float = 1.0
    clip_cov_ratio: float = 0.0002
    clip_cov_bounds: tuple[float, float] = (1.0, 5.0)
    kl_cov_ratio: float = 0.0002

    @property
    def needs_behavior(self) -> bool:
        """Whether every trained token must carry the sampler's log-probability."""
        rollout_threshold = self.off_policy_threshold is not None and self.off_policy_against == "rollout"
        return (
            self.loss.name in (*BEHAVIOR_LOSSES, "decoupled_ppo") or self.old_policy == "rollout"
            or (self.importance != "none" and not self.importance_lenient) or bool(self.rejections) or rollout_threshold
        )  # fmt: skip

    @property
    def needs_current(self) -> bool:
        """Whether `prepare` must see the batch's log-probabilities under the current weights."""
        return (
            (self.importance != "none" and self.importance_normalize) or bool(self.rejections)
            or self.off_policy_threshold is not None or self.top_entropy < 1
            or self.loss.name in ("clip_cov", "kl_cov")
        )  # fmt: skip

    @property
    def needs_entropy(self) -> bool:
        """Whether the entropy carries gradient or selects tokens."""
        return self.entropy_coefficient != 0 or self.top_entropy < 1


def options(c: Config, entropy_coefficient: float | None = None) -> ObjectiveOptions:
    """The configuration's objective, aliases resolved."""
    name, level, mode = resolved(c)
    o, k = c.loss, c.correction
    loss = LossOptions(
        name, o.clip_low, o.clip_high, o.dual_clip, o.delta, level, o.cispo_cap, o.sapo_tau_positive,
        o.sapo_tau_negative, o.vespo_k, o.vespo_lambda, o.kl_cov_coefficient,
        PROBABILITY_GAPS.get(o.name, 0.2) if o.probability_gap is None else o.probability_gap, o.log_ratio_penalty,
    )  # fmt: skip
    importance, lenient = importance_of(c)
    return ObjectiveOptions(
        loss=loss, aggregation=mode, length_norm=length_norm(c), kl_coefficient=c.kl.coefficient,
        kl_estimator=aggregate.KL_ALIASES.get(c.kl.estimator, c.kl.estimator), kl_bias_correction=c.kl.bias_correction,
        entropy_coefficient=c.entropy.coefficient if entropy_coefficient is None else entropy_coefficient,
        old_policy=k.old_policy, importance=importance, importance_lenient=lenient, importance_mode=k.importance_mode,
        importance_high=k.importance_high, importance_low=k.importance_low, importance_normalize=k.importance_normalize,
        rejections=tuple(correction.Rejection(r.rule, r.high, r.low) for r in k.rejections),
        rejection_denominator=k.rejection_denominator, off_policy_threshold=k.off_policy_threshold,
        off_policy_against=k.off_policy_against, top_entropy=o.top_entropy, clip_cov_ratio=o.clip_cov_ratio,
        clip_cov_bounds=o.clip_cov_bounds, kl_cov_ratio=o.kl_cov_ratio,
    )  # fmt: skip


@dataclass
class Plan:
    """Constants of one optimizer batch, (N,) each. old is None when the policy is its own old policy (one step per
    batch): the micro-batch's own log-probabilities are used then."""

    seq: Tensor
    n: int
    adv: Tensor
    old: Tensor | None
    behavior: Tensor
    ref: Tensor | None
    keep: Tensor
    policy_keep: Tensor
    weight: Tensor | None  # None as well where it is made of the micro-batch's own log-probabilities
    selected: Tensor | None
    policy_coefficient: Tensor
    coefficient: Tensor


def prepare(
    o: ObjectiveOptions, *, seq: Tensor, n: int, adv: Tensor, behavior: Tensor, old: Tensor | None = None,
    ref: Tensor | None = None, current: Tensor | None = None, entropy: Tensor | None = None, seed: int = 0,
) -> Plan:  # fmt: skip
    """Everything that depends on the batch as a whole. current (N,): log-probabilities under today's weights, without
    gradient; required when o.needs_current. seed: of clip_cov's random choice (the optimizer step)."""
    if o.old_policy == "rollout":
        old = behavior
    keep = torch.ones_like(seq, dtype=torch.bool)
    policy_keep, weight, selected = keep, None, None
    if o.needs_current and current is None:
        raise ValueError("this objective needs the batch's current log-probabilities, none were given")
    against = current if old is None else old
    corrected = current if o.old_policy == "rollout" else against
    if o.rejections:
        keep = correction.rejection_mask(corrected - behavior, seq, n, o.rejections)
    if o.importance != "none" and corrected is not None:
        weight = weights(o, corrected, behavior, seq, n)
    if o.off_policy_threshold is not None:
        origin = behavior if o.off_policy_against == "rollout" else against
        policy_keep = policy_keep & correction.off_policy_sequence_mask(
            current, origin, adv, seq, n, o.off_policy_threshold
        )
    if o.top_entropy < 1:
        policy_keep = policy_keep & aggregate.select_top_entropy(entropy, keep, o.top_entropy)
    if o.loss.name == "clip_cov":
        generator = torch.Generator().manual_seed(seed)
        clip = (o.loss.clip_low, o.loss.clip_high)
        picked = aggregate.select_clip_cov(
            adv[keep], current[keep], against[keep], clip, o.clip_cov_ratio, *o.clip_cov_bounds, generator
        )
    elif o.loss.name == "kl_cov":
        picked = aggregate.select_kl_cov(adv[keep], current[keep], o.kl_cov_ratio)
    if o.loss.name in ("clip_cov", "kl_cov"):
        selected = torch.zeros_like(keep)
        selected[keep] = picked
    counted = keep if o.rejection_denominator == "kept" else torch.ones_like(keep)
    coefficient = aggregate.coefficients(o.aggregation, keep, seq, n, o.length_norm, counted)
    policy = coefficient
    if o.loss.name == "gmpo":
        policy = aggregate.sequence_coefficients(keep, seq, n)
    elif o.loss.name == "weighted_sft":
        policy = torch.where(keep, 1 / (counted.sum().double() + 1e-8), 0.0)
    return Plan(seq, n, adv, old, behavior, ref, keep, policy_keep, weight, selected, policy, coefficient)


def weights(o: ObjectiveOptions, lp: Tensor, behavior: Tensor, seq: Tensor, n: int) -> Tensor:
    """(N,) importance weights of whole sequences, constant; lp are the log-probabilities that train or trained."""
    d = lp.detach() - behavior
    if o.importance_lenient:
        d = torch.where(torch.isnan(d), torch.zeros_like(d), d)
    return correction.importance_weights(
        d, seq, n, o.importance, o.importance_mode, o.importance_high, o.importance_low, o.importance_normalize
    )


@dataclass
class Parts:
    """A micro-batch's share of the objective; `total` carries the gradient. Counts are of tokens that train."""

    total: Tensor
    policy: Tensor
    kl: Tensor
    entropy: Tensor
    ratio_sum: Tensor
    ratio_max: Tensor
    clipped_high: Tensor
    clipped_low: Tensor
    clipped_dual: Tensor

    def sums(self) -> Tensor:
        """What is added up over micro-batches and ranks, (8,); on the device, so that nobody waits for it."""
        each = (self.total.detach(), self.policy, self.kl, self.entropy, self.ratio_sum, self.clipped_high,
                self.clipped_low, self.clipped_dual)  # fmt: skip
        return torch.stack([x.double() for x in each])


def micro_loss(o: ObjectiveOptions, p: Plan, index: Tensor, lp: Tensor, entropy: Tensor | None = None) -> Parts:
    """The part of the objective that the tokens `index` (entries of the plan's vectors) contribute. They must be whole
    sequences. lp, entropy: (len(index),) with gradient."""
    if o.rejections:
        kept = p.keep[index]
        index, lp = index[kept], lp[kept]
        entropy = entropy[kept] if entropy is not None else None
    take = lambda x: None if x is None else x[index]  # noqa: E731
    old = lp.detach() if p.old is None else p.old[index]
    weight = take(p.weight)
    if weight is None and o.importance != "none":  # the policy's own log-probabilities, known only now
        weight = weights(o, lp, p.behavior[index], p.seq[index], p.n)
    terms = Terms(
        lp, old, p.adv[index], p.seq[index], p.n, p.behavior[index], take(p.ref), take(p.selected), weight
    )  # fmt: skip
    loss = policy_loss(terms, o.loss)
    coefficient = p.coefficient[index]
    allowed = p.policy_keep[index].to(lp.dtype)
    policy = (p.policy_coefficient[index] * loss.value * allowed).sum()
    zero = policy.new_zeros(())
    divergence, bonus = zero, zero
    if o.kl_coefficient and p.ref is not None:
        each = aggregate.kl(lp, p.ref[index], o.kl_estimator)
        if o.kl_bias_correction:
            each = each * torch.exp(log_ratio(terms, o.loss.ratio_level))
        divergence = (coefficient * each).sum()
    if entropy is not None and o.entropy_coefficient:
        bonus = (coefficient * entropy * allowed).sum()
    total = policy + o.kl_coefficient * divergence - o.entropy_coefficient * bonus
    return Parts(
        total, policy.detach(), divergence.detach(), bonus.detach(), loss.ratio.sum(),
        loss.ratio.max() if len(index) else zero, loss.clipped_high.sum(), loss.clipped_low.sum(),
        loss.clipped_dual.sum(),
    )  # fmt: skip
