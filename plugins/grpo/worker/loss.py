"""Policy losses as pure functions on flat token vectors: no model, no configuration file, no side effects.

Each is one function (terms, options) -> Result; its decorator states everything that others must know of it
(registry.loss). docs/losses.md says how to write one. Notation: lp, old, behavior, ref, adv, seq, n as in
registry.Terms; r = the importance ratio exp(lp - old).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from . import aggregate
from .measure import Metric, maximum, mean
from .registry import Alias, Registry, Result, Terms, loss
from .segments import seg_count, seg_mean, seg_sum


@dataclass(frozen=True)
class LossOptions:
    """The constants of the losses; defaults are verl's."""

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
    clip_cov_ratio: float = 0.0002
    clip_cov_bounds: tuple[float, float] = (1.0, 5.0)
    kl_cov_ratio: float = 0.0002
    kl_cov_coefficient: float = 0.1
    probability_gap: float = 0.2  # dppo / ipo / distill: how far a token's probability may move
    log_ratio_penalty: float = 1e-3  # dppo / ipo / distill: coefficient of the squared log ratio (prime-rl's kl_tau)
    advantage_temperature: float = 1.0  # dppo / ipo: prime-rl's adv_tau


def safe(d: Tensor) -> Tensor:
    """Log ratios (N,) that exp can take: beyond e^20 a ratio is noise, and that of e^90 is infinite in float32. Where
    a clip then drops the token, infinity times 0 would make the whole batch's gradient NaN."""
    return d.clamp(-20, 20)


def log_ratio(t: Terms, level: str) -> Tensor:
    """(N,) log importance ratio: per token, per sequence (mean over its tokens, gradient through the mean), or
    GSPO-token (the sequence's mean as a constant, gradient through the token alone)."""
    d = t.lp - t.old
    if level == "token":
        return d
    mean_ratio = seg_mean(d, t.seq, t.n)[t.seq]
    if level == "sequence":
        return mean_ratio
    return t.lp - t.lp.detach() + mean_ratio.detach()


def ratio_metrics(
    r: Tensor, high: Tensor | None = None, low: Tensor | None = None, dual: Tensor | None = None
) -> dict[str, Metric]:
    """What every loss reports: its ratio, and the share of tokens clipped above, below and by the dual clip."""
    none = torch.zeros_like(r, dtype=torch.bool)
    high, low, dual = (none if x is None else x for x in (high, low, dual))
    return {"ratio/mean": mean(r), "ratio/max": maximum(r), "clip/high": mean(high), "clip/low": mean(low),
            "clip/dual": mean(dual)}  # fmt: skip


CLIP = ("clip_low", "clip_high")
PPO = (*CLIP, "dual_clip", "delta", "ratio_level")
GAP = ("probability_gap", "log_ratio_penalty")


@loss("ppo", uses=PPO, aliases=(
    "vanilla", "ppo_clip", "grpo", "dapo", "bnpo", Alias("dr_grpo", aggregation="batch-sum-norm"),
    Alias("luspo", ratio="sequence", aggregation="batch-mean-token-sum"),
))  # fmt: skip
def ppo(t: Terms, o: LossOptions) -> Result:
    """Clipped surrogate: max(-A r, -A clamp(r)); A < 0 is bounded by -A c (dual clip). TRL's delta bounds r itself."""
    d = log_ratio(t, o.ratio_level)
    d = safe(d) if o.ratio_level == "token" else d.clamp(max=10)
    r = torch.exp(d)
    plain = -t.adv * (r if o.delta is None else r.clamp(max=o.delta))
    bounded = -t.adv * r.clamp(1 - o.clip_low, 1 + o.clip_high)
    value = torch.maximum(plain, bounded)
    dual = None
    if o.dual_clip is not None and o.ratio_level == "token":
        ceiling = -t.adv * o.dual_clip
        dual = (value > ceiling) & (t.adv < 0)
        value = torch.where(t.adv < 0, torch.minimum(value, ceiling), value)
    hit = bounded > plain
    return Result(value, ratio_metrics(r, hit & (t.adv > 0), hit & (t.adv < 0), dual))


@loss("decoupled_ppo", weight="required", uses=PPO)
def decoupled_ppo(t: Terms, o: LossOptions) -> Result:
    """PPO with two old policies (Hilton et al. 2022, arXiv 2110.00641; AReaL, arXiv 2505.24298, equation 5):
    pi_old / pi_sampler x the clipped surrogate of pi / pi_old. The trust region is around the proximal policy `old`
    (the trainer's before the step), the weight, a constant, corrects for who sampled. t.weight is that weight bounded
    by correction.importance_*; without it it is taken as it is, as in the papers."""
    out = ppo(t, o)
    weight = t.weight if t.weight is not None else torch.exp(safe((t.old - t.behavior).detach()))
    return Result(out.value * weight, out.metrics)


@loss("gspo", ratio="sequence_token", aggregation="seq-mean-token-mean", uses=CLIP,
      aggregations=("seq-mean-token-mean", "batch-mean-token-mean"))  # fmt: skip
def gspo(t: Terms, o: LossOptions) -> Result:
    """Sequence-level ratio applied per token, no dual clip (Zheng et al. 2025, arXiv 2507.18071)."""
    return ppo(t, LossOptions(clip_low=o.clip_low, clip_high=o.clip_high, dual_clip=None, ratio_level="sequence_token"))


@loss("cispo", uses=(*CLIP, "cispo_cap"))
def cispo(t: Terms, o: LossOptions) -> Result:
    """-sg(clamp(r)) A lp: the clipped weight never stops a token's gradient."""
    r = torch.exp(safe(t.lp - t.old)).detach()
    if o.cispo_cap is None:
        clamped = r.clamp(1 - o.clip_low, 1 + o.clip_high)
    else:
        clamped = r.clamp(max=o.cispo_cap)
    return Result(-clamped * t.adv * t.lp, ratio_metrics(r, r > clamped, r < clamped))


@loss("sapo", aggregation="seq-mean-token-mean", aggregations=("seq-mean-token-mean", "batch-mean-token-mean"),
      uses=("sapo_tau_positive", "sapo_tau_negative"))  # fmt: skip
def sapo(t: Terms, o: LossOptions) -> Result:
    """A smooth gate 4/tau sigmoid(tau (r-1)) in place of the clip; tau 1.0 for A > 0, 1.05 else (arXiv 2511.20347)."""
    r = torch.exp(safe(t.lp - t.old))
    tau = torch.where(t.adv > 0, r.new_tensor(o.sapo_tau_positive), r.new_tensor(o.sapo_tau_negative))
    gate = torch.sigmoid(tau * (r - 1)) * (4 / tau)
    return Result(-gate * t.adv, ratio_metrics(r))


@loss("gmpo", aggregation="batch-mean-token-mean", aggregations=("batch-mean-token-mean",), weight="own", uses=CLIP,
      coefficients=aggregate.sequence_coefficients, aliases=("geo_mean",))  # fmt: skip
def gmpo(t: Terms, o: LossOptions) -> Result:
    """Geometric mean: log ratios clamped in the direction the advantage pushes, averaged, one loss per sequence."""
    d = t.lp - t.old
    sign = torch.sign(t.adv)
    clamped = d.clamp(-o.clip_low, o.clip_high)
    lower = sign * torch.minimum(sign * d, sign * clamped)
    count = seg_count(t.seq, t.n, d.dtype) + 1e-8
    ratio = torch.exp(safe(seg_sum(lower, t.seq, t.n) / count))
    value = -(seg_sum(t.adv, t.seq, t.n) / count) * ratio
    if t.weight is not None:
        value = value * torch.exp(seg_sum(torch.log(t.weight + 1e-10), t.seq, t.n) / count)
    hit = clamped != d
    return Result(value[t.seq], ratio_metrics(torch.exp(safe(d)), hit & (t.adv > 0), hit & (t.adv < 0)))


def most_covariant_in_bounds(adv: Tensor, lp: Tensor, old: Tensor, o: LossOptions, seed: int) -> Tensor:
    """clip_cov's selection over the whole batch."""
    generator = torch.Generator().manual_seed(seed)
    clip = (o.clip_low, o.clip_high)
    return aggregate.select_clip_cov(adv, lp, old, clip, o.clip_cov_ratio, *o.clip_cov_bounds, generator)


@loss("clip_cov", needs=("current",), select=most_covariant_in_bounds,
      uses=(*CLIP, "clip_cov_ratio", "clip_cov_bounds"))  # fmt: skip
def clip_cov(t: Terms, o: LossOptions) -> Result:
    """Clipped surrogate without dual clip; tokens picked for their covariance carry no policy gradient."""
    r = torch.exp(safe(t.lp - t.old))
    plain, bounded = -t.adv * r, -t.adv * r.clamp(1 - o.clip_low, 1 + o.clip_high)
    keep = 1 - t.selected.to(r.dtype) if t.selected is not None else torch.ones_like(r)
    hit = bounded > plain
    return Result(
        torch.maximum(plain, bounded) * keep, ratio_metrics(r, hit & (t.adv > 0), hit & (t.adv < 0))
    )  # fmt: skip


def most_covariant(adv: Tensor, lp: Tensor, old: Tensor, o: LossOptions, seed: int) -> Tensor:
    """kl_cov's selection over the whole batch."""
    return aggregate.select_kl_cov(adv, lp, o.kl_cov_ratio)


@loss("kl_cov", needs=("current",), select=most_covariant, uses=("kl_cov_ratio", "kl_cov_coefficient"))
def kl_cov(t: Terms, o: LossOptions) -> Result:
    """Unclipped surrogate; tokens with the largest covariance pay |log ratio| (Cui et al. 2025, arXiv 2505.22617). What
    they pay is 0.1 of it in verl's configuration (ppo_kl_coef); verl's function alone falls back to 1."""
    d = t.lp - t.old
    r = torch.exp(safe(d))
    picked = t.selected.to(r.dtype) if t.selected is not None else torch.zeros_like(r)
    return Result(-t.adv * r + picked * o.kl_cov_coefficient * d.abs(), ratio_metrics(r))


@loss("gpg", ratio=None, uses=())
def gpg(t: Terms, o: LossOptions) -> Result:
    """-A lp, for advantages of the estimator gpg (Chu et al. 2025, arXiv 2504.02546)."""
    return reinforce(t, o)


@loss("reinforce", ratio=None, uses=())
def reinforce(t: Terms, o: LossOptions) -> Result:
    """-A lp; in bypass mode the importance weight is what corrects it."""
    return Result(-t.adv * t.lp, ratio_metrics(torch.exp(safe(t.lp - t.old))))


@loss("vespo", weight="own", uses=("vespo_k", "vespo_lambda"))
def vespo(t: Terms, o: LossOptions) -> Result:
    """-phi A lp with phi = exp(lambda + k log W - lambda W), W the whole sequence's ratio, phi constant."""
    smallest = -18.420680743952367  # log(1e-8)
    total = seg_sum(safe((t.lp - t.old).detach()), t.seq, t.n)
    if t.weight is not None:
        total = total + seg_sum(torch.log(t.weight).clamp(smallest, 20), t.seq, t.n)
    log_w = total.clamp(smallest, 20)[t.seq]
    positive = t.adv >= 0
    k = torch.where(positive, log_w.new_tensor(o.vespo_k[0]), log_w.new_tensor(o.vespo_k[1]))
    lam = torch.where(positive, log_w.new_tensor(o.vespo_lambda[0]), log_w.new_tensor(o.vespo_lambda[1]))
    phi = torch.exp(lam + k * log_w - lam * torch.exp(log_w))
    return Result(-phi * t.adv * t.lp, ratio_metrics(torch.exp(log_w)))


def probability_move(t: Terms) -> tuple[Tensor, Tensor, Tensor]:
    """(N,) each: log ratio to the sampler, the ratio, and by how much the token's probability has moved (constant)."""
    d = t.lp - t.behavior
    return d, torch.exp(safe(d)), (torch.exp(t.lp) - torch.exp(t.behavior)).detach()


def within_gap(t: Terms, o: LossOptions, move: tuple, high: Tensor, low: Tensor, adv: Tensor) -> Result:
    """-A r of the tokens that moved neither too far up nor too far down, and the squared log ratio of all."""
    d, r, _ = move
    keep = (~(high | low)).to(r.dtype)
    return Result(-keep * adv * r + o.log_ratio_penalty * d * d, ratio_metrics(r, high, low))


# How far a token's probability may move: dppo as verl's example for the Binary-TV paper sets it (Qi et al. 2026, arXiv
# 2602.04879), the others as prime-rl ships default, ipo and ref_kl.
@loss("dppo", against="sampler", uses=GAP, defaults={"probability_gap": 0.15},
      aliases=(Alias("default", defaults={"probability_gap": 0.2}),))  # fmt: skip
def dppo(t: Terms, o: LossOptions) -> Result:
    """A token is dropped when its probability already moved too far the way A pushes it: DPPO with the binary total
    variation (Qi et al. 2026, arXiv 2602.04879, trained with 0.15), and the squared log ratio of Kimi K2.5 (arXiv
    2602.02276) as prime-rl combines them in its default loss (0.2, adv_tau 1, kl_tau 1e-3)."""
    move = _, _, gap = probability_move(t)
    high, low = (t.adv > 0) & (gap > o.probability_gap), (t.adv <= 0) & (gap < -o.probability_gap)
    return within_gap(t, o, move, high, low, o.advantage_temperature * t.adv)


@loss("ipo", against="sampler", uses=GAP, defaults={"probability_gap": 0.1})
def ipo(t: Terms, o: LossOptions) -> Result:
    """Like dppo, but a token whose probability moved too far either way is dropped (prime-rl's ipo: 0.1)."""
    move = _, _, gap = probability_move(t)
    return within_gap(t, o, move, gap > o.probability_gap, gap < -o.probability_gap, o.advantage_temperature * t.adv)


@loss("distill", against="sampler", needs=("reference",), uses=GAP, defaults={"probability_gap": 0.2},
      aliases=("ref_kl",))  # fmt: skip
def distill(t: Terms, o: LossOptions) -> Result:
    """On-policy distillation: the advantage is the reverse KL of the token, sg(ref - lp), at temperature 1 (Lu 2025,
    "On-Policy Distillation"). As in prime-rl's ref_kl a token is dropped when its probability fell by more than 0.2,
    and the squared log ratio costs 1e-3."""
    move = _, _, gap = probability_move(t)
    low = gap < -o.probability_gap
    return within_gap(t, o, move, torch.zeros_like(low), low, (t.ref - t.lp).detach())


@loss("sft", ratio=None, weight="explicit", uses=(), aliases=("ce",))
def sft(t: Terms, o: LossOptions) -> Result:
    """-lp, whatever the advantage."""
    return Result(-t.lp, ratio_metrics(torch.ones_like(t.adv)))


@loss("weighted_sft", ratio=None, weight="explicit", unbounded=True, aggregations=("token-mean",), uses=(),
      coefficients=aggregate.token_coefficients, aliases=("awsft", "advantage_weighted_sft"))  # fmt: skip
def weighted_sft(t: Terms, o: LossOptions) -> Result:
    """Cross entropy weighted by the token's advantage. A < 0 makes it unbounded: clip the advantages."""
    return Result(-t.lp * t.adv, ratio_metrics(torch.ones_like(t.adv)))


@loss("atropos", against="sampler", uses=CLIP)
def atropos(t: Terms, o: LossOptions) -> Result:
    """The surrogate of Atropos's example trainer, kept for comparison only: for A < 0 it takes the wrong bound."""
    r = torch.exp(safe(t.lp - t.behavior))
    clamped = r.clamp(1 - o.clip_low, 1 + o.clip_high)
    plain, bounded = r * t.adv, clamped * t.adv
    value = -torch.where(t.adv < 0, torch.maximum(plain, bounded), torch.minimum(plain, bounded))
    hit = r != clamped
    return Result(value, ratio_metrics(r, hit & (r > 1), hit & (r < 1)))


LOSSES = Registry("loss", globals())
