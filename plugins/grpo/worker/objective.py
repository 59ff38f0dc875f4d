"""The whole objective of one optimizer step: policy loss x importance weight, KL, entropy, rejection, aggregation.

`prepare` looks at the complete optimizer batch once and fixes everything that a token needs to know about the others
(coefficients, masks, weights, selections). `micro_loss` then sums any part of the batch, so that micro-batches and
ranks may split it as they like.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field

import torch
from torch import Tensor

from . import aggregate, correction
from .config import Config, importance_of, length_norm, loss_defaults, loss_spec, resolved
from .loss import LOSSES, LossOptions, log_ratio, safe
from .measure import Metric, total
from .registry import LossSpec, Terms, evaluate


@dataclass(frozen=True)
class ObjectiveOptions:
    """What is minimized; defaults are verl's GRPO."""

    loss: LossSpec = LOSSES.specs["ppo"]
    constants: LossOptions = field(default_factory=LossOptions)
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

    @property
    def bounds(self) -> tuple[float | None, float | None]:
        """Between which ratios trainer / sampler no importance weight is clipped."""
        return self.importance_low, self.importance_high

    @property
    def needs_behavior(self) -> bool:
        """Whether every trained token must carry the sampler's log-probability."""
        rollout_threshold = self.off_policy_threshold is not None and self.off_policy_against == "rollout"
        return (
            self.loss.needs_sampler or self.old_policy == "rollout"
            or (self.importance != "none" and not self.importance_lenient) or bool(self.rejections) or rollout_threshold
        )  # fmt: skip

    @property
    def needs_current(self) -> bool:
        """Whether `prepare` must see the batch's log-probabilities under the current weights."""
        return (
            (self.importance != "none" and self.importance_normalize) or bool(self.rejections)
            or self.off_policy_threshold is not None or self.top_entropy < 1
            or "current" in self.loss.needs
        )  # fmt: skip

    @property
    def needs_entropy(self) -> bool:
        """Whether the entropy carries gradient or selects tokens."""
        return self.entropy_coefficient != 0 or self.top_entropy < 1


def options(c: Config, entropy_coefficient: float | None = None) -> ObjectiveOptions:
    """The configuration's objective, aliases resolved."""
    _, level, mode = resolved(c)
    o, k = c.loss, c.correction
    constants = {f.name: getattr(o, f.name) for f in dataclasses.fields(LossOptions) if hasattr(o, f.name)}
    own = {"probability_gap": LossOptions.probability_gap, **loss_defaults(c)}
    unset = {name: value for name, value in own.items() if constants[name] is None}
    importance, lenient = importance_of(c)
    return ObjectiveOptions(
        loss=loss_spec(c), constants=LossOptions(**{**constants, **unset, "ratio_level": level}),
        aggregation=mode, length_norm=length_norm(c), kl_coefficient=c.kl.coefficient,
        kl_estimator=aggregate.KL_ALIASES.get(c.kl.estimator, c.kl.estimator), kl_bias_correction=c.kl.bias_correction,
        entropy_coefficient=c.entropy.coefficient if entropy_coefficient is None else entropy_coefficient,
        old_policy=k.old_policy, importance=importance, importance_lenient=lenient, importance_mode=k.importance_mode,
        importance_high=k.importance_high, importance_low=k.importance_low, importance_normalize=k.importance_normalize,
        rejections=tuple(correction.Rejection(r.rule, r.high, r.low) for r in k.rejections),
        rejection_denominator=k.rejection_denominator, off_policy_threshold=k.off_policy_threshold,
        off_policy_against=k.off_policy_against, top_entropy=o.top_entropy,
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
    rollout: Tensor | None = None, rollouts: int = 0,
) -> Plan:  # fmt: skip
    """Everything that depends on the batch as a whole. current (N,): log-probabilities under today's weights, without
    gradient; required when o.needs_current. seed: of clip_cov's random choice (the optimizer step). rollout (N,): which
    of so many rollouts the token belongs to, where some have several sequences: the mean over sequences is one over
    rollouts then, and over the tokens of one the mean over all its sequences."""
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
    if o.loss.select is not None:
        selected = torch.zeros_like(keep)
        selected[keep] = o.loss.select(adv[keep], current[keep], against[keep], o.constants, seed)
    counted = keep if o.rejection_denominator == "kept" else torch.ones_like(keep)
    unit, units = (seq, n) if rollout is None else (rollout, rollouts)
    coefficient = aggregate.coefficients(o.aggregation, keep, unit, units, o.length_norm, counted)
    fixed = o.loss.coefficients
    policy = coefficient if fixed is None else fixed(keep, counted, unit, units)
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
class Part:
    """A micro-batch's share of the objective: `total` carries the gradient, `metrics` stay on the device."""

    total: Tensor
    metrics: dict[str, Metric]


def micro_loss(o: ObjectiveOptions, p: Plan, index: Tensor, lp: Tensor, entropy: Tensor | None = None) -> Part:
    """The part of the objective that the tokens `index` (entries of the plan's vectors) contribute. They must be whole
    sequences. lp, entropy: (len(index),) with gradient."""
    if o.rejections:
        kept = p.keep[index]
        index, lp = index[kept], lp[kept]
        entropy = entropy[kept] if entropy is not None else None
    at = lambda x: None if x is None else x[index]  # noqa: E731
    old = lp.detach() if p.old is None else p.old[index]
    weight = at(p.weight)
    if weight is None and o.importance != "none":  # the policy's own log-probabilities, known only now
        weight = weights(o, lp, p.behavior[index], p.seq[index], p.n)
    terms = Terms(lp, old, p.adv[index], p.seq[index], p.n, p.behavior[index], at(p.ref), at(p.selected), weight)
    result = evaluate(o.loss, terms, o.constants)
    coefficient = p.coefficient[index]
    allowed = p.policy_keep[index].to(lp.dtype)
    policy = (p.policy_coefficient[index] * result.value * allowed).sum()
    divergence = bonus = policy.new_zeros(())
    if o.kl_coefficient and p.ref is not None:
        each = aggregate.kl(lp, p.ref[index], o.kl_estimator)
        if o.kl_bias_correction:
            each = each * torch.exp(safe(log_ratio(terms, o.constants.ratio_level)))
        divergence = (coefficient * each).sum()
    if entropy is not None and o.entropy_coefficient:
        bonus = (coefficient * entropy * allowed).sum()
    whole = policy + o.kl_coefficient * divergence - o.entropy_coefficient * bonus
    parts = {"loss/total": whole, "loss/policy": policy, "loss/kl": divergence, "loss/entropy": bonus}
    return Part(whole, {**{name: total(x) for name, x in parts.items()}, **result.metrics})
