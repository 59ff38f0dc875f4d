"""Policy losses as pure functions on flat token vectors. No model, no configuration file, no side effects.

Notation (all vectors (N,), one entry per trained token of whole sequences; `seq` (N,) names the sequence, `n` counts
sequences): lp = current log-probability (carries the gradient), old = log-probability the ratio is taken against,
behavior = the sampler's, ref = the reference model's, adv = advantage. Masked tokens are simply absent.
Every function returns the per-token loss (N,) before weighting and aggregation, with the tokens it clipped.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from .segments import seg_count, seg_mean, seg_sum

# Names that users of verl, TRL, prime-rl and AReaL know, for the same formula here.
LOSS_ALIASES = {
    "vanilla": "ppo", "ppo_clip": "ppo", "grpo": "ppo", "dapo": "ppo", "bnpo": "ppo", "dr_grpo": "ppo",
    "geo_mean": "gmpo", "default": "dppo", "ref_kl": "distill", "ce": "sft",
    "awsft": "weighted_sft", "advantage_weighted_sft": "weighted_sft", "luspo": "ppo",
}  # fmt: skip
LOSSES = (
    "ppo", "decoupled_ppo", "gspo", "cispo", "sapo", "gmpo", "clip_cov", "kl_cov", "gpg", "reinforce", "vespo", "dppo",
    "ipo", "distill", "sft", "weighted_sft", "atropos",
)  # fmt: skip
RATIO_LEVELS = ("token", "sequence", "sequence_token")
# Losses whose ratio is always against the sampler's log-probabilities.
BEHAVIOR_LOSSES = ("dppo", "ipo", "distill", "atropos")
SUPERVISED_LOSSES = ("sft", "weighted_sft")
# What loss.aggregation may say of a loss whose formula fixes how its tokens are averaged; the first is the default.
FIXED_AGGREGATION = {
    "gspo": ("seq-mean-token-mean", "batch-mean-token-mean"),
    "sapo": ("seq-mean-token-mean", "batch-mean-token-mean"),
    "gmpo": ("batch-mean-token-mean",),
    "weighted_sft": ("token-mean",),
}
# How far a token's probability may move, by the name under which the loss was asked for: dppo as verl's example for the
# Binary-TV paper sets it (Qi et al. 2026, arXiv 2602.04879), the others as prime-rl ships default, ipo and ref_kl.
PROBABILITY_GAPS = {"dppo": 0.15, "default": 0.2, "ipo": 0.1, "distill": 0.2, "ref_kl": 0.2}


@dataclass(frozen=True)
class LossOptions:
    """The constants of the losses; defaults are verl's."""

    name: str = "ppo"
    clip_low: float = 0.2
    clip_high: float = 0.2
    dual_clip: float | None = 3.0
    delta: float | None = None  # TRL's two-sided clipping: upper bound on the unclipped ratio
    ratio_level: str = "token"
    cispo_cap: float | None = None  # TRL's cispo: absolute upper cap, no lower one; None = verl's 1 -/+ clip
    sapo_tau_positive: float = 1.0
    sapo_tau_negative: float = 1.05
    vespo_k: tuple[float, float] = (2.0, 3.0)  # advantage >= 0, < 0
    vespo_lambda: tuple[float, float] = (3.0, 2.0)
    kl_cov_coefficient: float = 0.1
    probability_gap: float = 0.2  # dppo / ipo / distill: how far a token's probability may move
    log_ratio_penalty: float = 1e-3  # dppo / ipo / distill: coefficient of the squared log ratio (prime-rl's kl_tau)
    advantage_temperature: float = 1.0  # dppo / ipo: prime-rl's adv_tau


@dataclass
class Terms:
    """One micro-batch's vectors. `selected` (N,) bool marks the tokens of the clip_cov / kl_cov selection."""

    lp: Tensor
    old: Tensor
    adv: Tensor
    seq: Tensor
    n: int
    behavior: Tensor | None = None
    ref: Tensor | None = None
    selected: Tensor | None = None
    weight: Tensor | None = None  # importance weights, constant; decoupled_ppo, vespo and gmpo apply them themselves


@dataclass
class Loss:
    """Per-token loss (N,), the ratio used (N,) detached, and which tokens were clipped above / below / by dual clip."""

    value: Tensor
    ratio: Tensor
    clipped_high: Tensor
    clipped_low: Tensor
    clipped_dual: Tensor
    weighted: bool = False  # the importance weight is already inside
    per_sequence: bool = False  # value is constant within a sequence and counts once per sequence


def _none(t: Terms) -> Tensor:
    return torch.zeros_like(t.adv, dtype=torch.bool)


def log_ratio(t: Terms, level: str) -> Tensor:
    """(N,) log importance ratio: per token, per sequence (mean over its tokens, gradient through the mean), or
    GSPO-token (the sequence's mean as a constant, gradient through the token alone)."""
    d = t.lp - t.old
    if level == "token":
        return d
    mean = seg_mean(d, t.seq, t.n)[t.seq]
    if level == "sequence":
        return mean
    return t.lp - t.lp.detach() + mean.detach()


def ppo(t: Terms, o: LossOptions) -> Loss:
    """Clipped surrogate: max(-A r, -A clamp(r)); A < 0 is bounded by -A c (dual clip). TRL's delta bounds r itself."""
    d = log_ratio(t, o.ratio_level)
    d = d.clamp(-20, 20) if o.ratio_level == "token" else d.clamp(max=10)
    r = torch.exp(d)
    clamped = r.clamp(1 - o.clip_low, 1 + o.clip_high)
    plain = -t.adv * (r if o.delta is None else r.clamp(max=o.delta))
    bounded = -t.adv * clamped
    value = torch.maximum(plain, bounded)
    dual = _none(t)
    if o.dual_clip is not None and o.ratio_level == "token":
        ceiling = -t.adv * o.dual_clip
        dual = (value > ceiling) & (t.adv < 0)
        value = torch.where(t.adv < 0, torch.minimum(value, ceiling), value)
    hit = bounded > plain
    return Loss(value, r.detach(), hit & (t.adv > 0), hit & (t.adv < 0), dual)


def decoupled_ppo(t: Terms, o: LossOptions) -> Loss:
    """PPO with two old policies (Hilton et al. 2022, arXiv 2110.00641; AReaL, arXiv 2505.24298, equation 5):
    pi_old / pi_sampler x the clipped surrogate of pi / pi_old. The trust region is around the proximal policy `old`
    (the trainer's before the step), the weight, a constant, corrects for who sampled. t.weight is that weight bounded
    by correction.importance_*; without it it is taken as it is, as in the papers."""
    out = ppo(t, o)
    weight = t.weight if t.weight is not None else torch.exp((t.old - t.behavior).detach().clamp(-20, 20))
    out.value, out.weighted = out.value * weight, True
    return out


def gspo(t: Terms, o: LossOptions) -> Loss:
    """Sequence-level ratio applied per token, no dual clip (Zheng et al. 2025, arXiv 2507.18071)."""
    return ppo(t, LossOptions(clip_low=o.clip_low, clip_high=o.clip_high, dual_clip=None, ratio_level="sequence_token"))


def cispo(t: Terms, o: LossOptions) -> Loss:
    """-sg(clamp(r)) A lp: the clipped weight never stops a token's gradient."""
    r = torch.exp((t.lp - t.old).clamp(-20, 20)).detach()
    if o.cispo_cap is None:
        clamped = r.clamp(1 - o.clip_low, 1 + o.clip_high)
    else:
        clamped = r.clamp(max=o.cispo_cap)
    return Loss(-clamped * t.adv * t.lp, r, r > clamped, r < clamped, _none(t))


def sapo(t: Terms, o: LossOptions) -> Loss:
    """A smooth gate 4/tau sigmoid(tau (r-1)) in place of the clip; tau 1.0 for A > 0, 1.05 else (arXiv 2511.20347)."""
    r = torch.exp((t.lp - t.old).clamp(-20, 20))
    tau = torch.where(t.adv > 0, r.new_tensor(o.sapo_tau_positive), r.new_tensor(o.sapo_tau_negative))
    gate = torch.sigmoid(tau * (r - 1)) * (4 / tau)
    return Loss(-gate * t.adv, r.detach(), _none(t), _none(t), _none(t))


def gmpo(t: Terms, o: LossOptions) -> Loss:
    """Geometric mean: log ratios clamped in the direction the advantage pushes, averaged, one loss per sequence."""
    d = t.lp - t.old
    sign = torch.sign(t.adv)
    clamped = d.clamp(-o.clip_low, o.clip_high)
    lower = sign * torch.minimum(sign * d, sign * clamped)
    count = seg_count(t.seq, t.n, d.dtype) + 1e-8
    ratio = torch.exp(seg_sum(lower, t.seq, t.n) / count)
    value = -(seg_sum(t.adv, t.seq, t.n) / count) * ratio
    if t.weight is not None:
        value = value * torch.exp(seg_sum(torch.log(t.weight + 1e-10), t.seq, t.n) / count)
    hit = clamped != d
    return Loss(value[t.seq], torch.exp(d).detach(), hit & (t.adv > 0), hit & (t.adv < 0), _none(t), True, True)


def clip_cov(t: Terms, o: LossOptions) -> Loss:
    """Clipped surrogate without dual clip; tokens picked for their covariance carry no policy gradient."""
    r = torch.exp(t.lp - t.old)
    plain, bounded = -t.adv * r, -t.adv * r.clamp(1 - o.clip_low, 1 + o.clip_high)
    keep = 1 - t.selected.to(r.dtype) if t.selected is not None else torch.ones_like(r)
    hit = bounded > plain
    return Loss(torch.maximum(plain, bounded) * keep, r.detach(), hit & (t.adv > 0), hit & (t.adv < 0), _none(t))


def kl_cov(t: Terms, o: LossOptions) -> Loss:
    """Unclipped surrogate; tokens with the largest covariance pay |log ratio| (Cui et al. 2025, arXiv 2505.22617). What
    they pay is 0.1 of it in verl's configuration (ppo_kl_coef); verl's function alone falls back to 1."""
    d = t.lp - t.old
    r = torch.exp(d)
    picked = t.selected.to(r.dtype) if t.selected is not None else torch.zeros_like(r)
    return Loss(-t.adv * r + picked * o.kl_cov_coefficient * d.abs(), r.detach(), _none(t), _none(t), _none(t))


def reinforce(t: Terms, o: LossOptions) -> Loss:
    """-A lp; `gpg` is the same formula, `reinforce` in bypass mode gets the importance weight from the caller."""
    return Loss(-t.adv * t.lp, torch.exp((t.lp - t.old).clamp(-20, 20)).detach(), _none(t), _none(t), _none(t))


def vespo(t: Terms, o: LossOptions) -> Loss:
    """-phi A lp with phi = exp(lambda + k log W - lambda W), W the whole sequence's ratio, phi constant."""
    smallest = -18.420680743952367  # log(1e-8)
    total = seg_sum((t.lp - t.old).detach().clamp(-20, 20), t.seq, t.n)
    if t.weight is not None:
        total = total + seg_sum(torch.log(t.weight).clamp(smallest, 20), t.seq, t.n)
    log_w = total.clamp(smallest, 20)[t.seq]
    positive = t.adv >= 0
    k = torch.where(positive, log_w.new_tensor(o.vespo_k[0]), log_w.new_tensor(o.vespo_k[1]))
    lam = torch.where(positive, log_w.new_tensor(o.vespo_lambda[0]), log_w.new_tensor(o.vespo_lambda[1]))
    phi = torch.exp(lam + k * log_w - lam * torch.exp(log_w))
    return Loss(-phi * t.adv * t.lp, torch.exp(log_w), _none(t), _none(t), _none(t), True)


def _gap(t: Terms) -> tuple[Tensor, Tensor, Tensor]:
    d = t.lp - t.behavior
    return d, torch.exp(d), (torch.exp(t.lp) - torch.exp(t.behavior)).detach()


def dppo(t: Terms, o: LossOptions) -> Loss:
    """A token is dropped when its probability already moved too far the way A pushes it: DPPO with the binary total
    variation (Qi et al. 2026, arXiv 2602.04879, trained with 0.15), and the squared log ratio of Kimi K2.5 (arXiv
    2602.02276) as prime-rl combines them in its default loss (0.2, adv_tau 1, kl_tau 1e-3)."""
    d, r, gap = _gap(t)
    high, low = (t.adv > 0) & (gap > o.probability_gap), (t.adv <= 0) & (gap < -o.probability_gap)
    keep = (~(high | low)).to(r.dtype)
    value = -keep * o.advantage_temperature * t.adv * r + o.log_ratio_penalty * d * d
    return Loss(value, r.detach(), high, low, _none(t))


def ipo(t: Terms, o: LossOptions) -> Loss:
    """Like dppo, but a token whose probability moved too far either way is dropped (prime-rl's ipo: 0.1)."""
    d, r, gap = _gap(t)
    high, low = gap > o.probability_gap, gap < -o.probability_gap
    keep = (~(high | low)).to(r.dtype)
    value = -keep * o.advantage_temperature * t.adv * r + o.log_ratio_penalty * d * d
    return Loss(value, r.detach(), high, low, _none(t))


def distill(t: Terms, o: LossOptions) -> Loss:
    """On-policy distillation: the advantage is the reverse KL of the token, sg(ref - lp), at temperature 1 (Lu 2025,
    "On-Policy Distillation"). As in prime-rl's ref_kl a token is dropped when its probability fell by more than 0.2,
    and the squared log ratio costs 1e-3."""
    d, r, gap = _gap(t)
    low = gap < -o.probability_gap
    value = -(~low).to(r.dtype) * (t.ref - t.lp).detach() * r + o.log_ratio_penalty * d * d
    return Loss(value, r.detach(), _none(t), low, _none(t))


def sft(t: Terms, o: LossOptions) -> Loss:
    """-lp, whatever the advantage."""
    return Loss(-t.lp, torch.ones_like(t.adv), _none(t), _none(t), _none(t))


def weighted_sft(t: Terms, o: LossOptions) -> Loss:
    """Cross entropy weighted by the token's advantage. A < 0 makes it unbounded: clip the advantages."""
    return Loss(-t.lp * t.adv, torch.ones_like(t.adv), _none(t), _none(t), _none(t))


def atropos(t: Terms, o: LossOptions) -> Loss:
    """The surrogate of Atropos's example trainer, kept for comparison only: for A < 0 it takes the wrong bound."""
    r = torch.exp(t.lp - t.behavior)
    plain, bounded = r * t.adv, r.clamp(1 - o.clip_low, 1 + o.clip_high) * t.adv
    value = -torch.where(t.adv < 0, torch.maximum(plain, bounded), torch.minimum(plain, bounded))
    hit = r != r.clamp(1 - o.clip_low, 1 + o.clip_high)
    return Loss(value, r.detach(), hit & (r > 1), hit & (r < 1), _none(t))


FUNCTIONS = {
    "ppo": ppo, "decoupled_ppo": decoupled_ppo,
    "gspo": gspo, "cispo": cispo, "sapo": sapo, "gmpo": gmpo, "clip_cov": clip_cov, "kl_cov": kl_cov,
    "gpg": reinforce, "reinforce": reinforce, "vespo": vespo, "dppo": dppo, "ipo": ipo, "distill": distill,
    "sft": sft, "weighted_sft": weighted_sft, "atropos": atropos,
}  # fmt: skip


def policy_loss(t: Terms, o: LossOptions) -> Loss:
    """The per-token loss named by `o.name` (aliases resolved by the caller); t.weight is applied unless the loss
    uses it itself."""
    out = FUNCTIONS[o.name](t, o)
    if t.weight is not None and not out.weighted:
        out.value = out.value * t.weight
    return out
