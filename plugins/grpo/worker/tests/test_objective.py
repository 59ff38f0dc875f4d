"""Value and gradient of every loss x aggregation x correction against independent dense references, to 1e-9; and that
micro-batches, order and padding cannot matter."""

import dataclasses

import pytest
import torch

from worker import aggregate, correction, objective
from worker.loss import LOSSES, LossOptions
from worker.objective import ObjectiveOptions

from . import reference

torch.set_num_threads(1)
LENGTHS = [5, 3, 0, 7, 1, 4]  # trained tokens; one sequence has none
WIDTH = 9  # of the dense tensors
LONGEST = 11.0  # constant of the -norm modes: longer than any response of the batch


def data(seed=0, spread=0.5):
    """Dense (B, T) tensors with holes in the mask, and the flat vectors of the same numbers."""
    g = torch.Generator().manual_seed(seed)
    B, T = len(LENGTHS), WIDTH
    M = torch.zeros(B, T, dtype=torch.float64)
    for i, n in enumerate(LENGTHS):
        M[i, torch.randperm(T, generator=g)[:n].sort().values] = 1
    rand = lambda s: torch.randn(B, T, generator=g, dtype=torch.float64) * s  # noqa: E731
    lp = -1.5 + rand(0.4)
    lp = torch.clamp(lp, max=-0.01)
    d = {"lp": lp, "old": lp + rand(spread), "b": lp + rand(spread), "ref": lp + rand(spread), "A": rand(1.0), "M": M}
    d["H"] = rand(0.3).abs()
    for k in ("old", "b", "ref"):
        d[k] = torch.clamp(d[k], max=-0.001)
    return d


def flat(d, key):
    return d[key][d["M"] > 0]


def seq_of(d):
    return torch.nonzero(d["M"] > 0)[:, 0]


def ours(d, o, parts=None, order=None):
    """Total and its gradient w.r.t. the dense lp, computed through prepare + micro_loss on the given sequence parts."""
    lp = d["lp"].clone().requires_grad_()
    dense = dict(d, lp=lp)
    seq = seq_of(d)
    H = d["H"] * 1.0
    entropy_in = H.clone().requires_grad_()
    plan = objective.prepare(
        o, seq=seq, n=len(LENGTHS), adv=flat(d, "A"), behavior=flat(d, "b"), old=flat(d, "old"),
        ref=flat(d, "ref"), current=flat(d, "lp"), entropy=flat(d, "H"), seed=7,
    )  # fmt: skip
    total = 0
    for members in parts or [range(len(LENGTHS))]:
        index = torch.nonzero(torch.isin(seq, torch.tensor(list(members)))).flatten()
        if order is not None:
            index = index[torch.randperm(len(index), generator=torch.Generator().manual_seed(order))]
        part = objective.micro_loss(o, plan, index, flat(dense, "lp")[index], entropy_in[d["M"] > 0][index])
        part.total.backward(retain_graph=True)
        total += part.total.detach()
    eg = entropy_in.grad if entropy_in.grad is not None else torch.zeros_like(H)
    return total, lp.grad, eg, plan


# Each loss by its own name, and some with other constants: (loss, constants).
CASES = {name: (name, {}) for name in LOSSES.specs} | {
    "cispo_cap": ("cispo", {"cispo_cap": 1.1}), "delta": ("ppo", {"delta": 1.5, "clip_high": 0.28, "dual_clip": None}),
    "sequence": ("ppo", {"ratio_level": "sequence", "dual_clip": None}),
}  # fmt: skip


def of(case, clip_cov_ratio=0.2, clip_cov_bounds=(0.05, 5.0), kl_cov_ratio=0.2, **more):
    """The objective of a case."""
    name, constants = CASES[case]
    spec = LOSSES.specs[name]
    base = {"ratio_level": spec.ratio or "token", "clip_cov_ratio": clip_cov_ratio, "clip_cov_bounds": clip_cov_bounds,
            "kl_cov_ratio": kl_cov_ratio}  # fmt: skip
    return ObjectiveOptions(loss=spec, constants=LossOptions(**{**base, **constants}), **more)


R = correction.Rejection
CORRECTIONS = {
    "none": {},
    "token": {"importance": "token"},
    "token_low": {"importance": "token", "importance_low": 0.5, "importance_high": 3.0},
    "token_norm": {"importance": "token", "importance_normalize": True},
    "token_mask": {"importance": "token", "importance_mode": "mask", "importance_high": 1.8, "importance_low": 0.3},
    "sequence": {"importance": "sequence"},
    "sequence_mask": {"importance": "sequence", "importance_mode": "mask", "importance_high": 3.0},
    "sequence_norm": {"importance": "sequence", "importance_normalize": True},
    "reject": {"rejections": (R("token_k1", 2.0, 0.4), R("seq_mean_k3", 0.35))},
    "reject_original": {"rejections": (R("token_k2", 0.3),), "rejection_denominator": "original"},
    "both": {"importance": "token", "rejections": (R("seq_max_k3", 0.8),)},
    "off_policy": {"off_policy_threshold": 0.1},
    "opsm": {"off_policy_threshold": 0.1, "off_policy_against": "trainer"},
    "entropy_top": {"top_entropy": 0.5},
}


def theirs(d, case, o, selected=None):
    """The same objective, dense."""
    lp = d["lp"].clone().requires_grad_()
    H = d["H"].clone().requires_grad_()
    M, A = d["M"], d["A"]
    drift = (d["old"] if o.old_policy == "trainer" else d["lp"]) - d["b"]
    old = d["old"] if o.old_policy == "trainer" else d["b"]
    K = M.clone()
    for rule in o.rejections:
        K = K * ~reference.rejected(drift, M, rule.rule, rule.high, rule.low)
    w = None
    if o.importance != "none":
        w = reference.importance(
            drift, M, o.importance, o.importance_mode, o.importance_high, o.importance_low, o.importance_normalize
        )
    allowed = torch.ones_like(M)
    if o.off_policy_threshold is not None:
        origin = d["b"] if o.off_policy_against == "rollout" else old
        gap = ((origin - d["lp"]) * M).sum(1, keepdim=True) / M.sum(1, keepdim=True).clamp(min=1)
        allowed = allowed * ((A >= 0) | (gap <= o.off_policy_threshold))
    if o.top_entropy < 1:
        allowed = allowed * (d["H"] >= torch.quantile(d["H"][K > 0], 1 - o.top_entropy))
    per = reference.per_token(case, lp, old, d["b"], d["ref"], A, K, w, selected)
    counted = K if o.rejection_denominator == "kept" else M
    scale = lambda L, mode: reference.agg(L * K, counted, mode, LONGEST)  # noqa: E731
    if case == "gmpo":
        spread = (allowed * K).sum(1) / K.sum(1).clamp(min=1)  # a token-level mask drops its share of the sequence
        policy = (per * spread).sum() / len(per)
    elif case == "weighted_sft":
        policy = (per * allowed * K).sum() / (counted.sum() + 1e-8)
    else:
        policy = scale(per * allowed, o.aggregation)
    kl = reference.kl(lp, d["ref"], o.kl_estimator)
    if o.kl_bias_correction:
        kl = kl * torch.exp(lp - old)
    total = policy + o.kl_coefficient * scale(kl, o.aggregation)
    total = total - o.entropy_coefficient * scale(H * allowed, o.aggregation)
    total.backward()
    return total.detach(), lp.grad, H.grad if H.grad is not None else torch.zeros_like(H)


def check(d, case, o):
    got, grad, eg, plan = ours(d, o)
    selected = None
    if plan.selected is not None:
        selected = torch.zeros_like(d["M"])
        selected[d["M"] > 0] = plan.selected.double()
    want, wgrad, weg = theirs(d, case, o, selected)
    assert abs(float(got - want)) <= 1e-9, (float(got), float(want))
    assert float((grad - wgrad).abs().max()) <= 1e-9
    assert float((eg - weg).abs().max()) <= 1e-9
    return got, grad


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("name", CORRECTIONS)
def test_every_loss_aggregation_correction(case, name):
    for mode in aggregate.AGGREGATIONS:
        o = of(
            case, aggregation=mode, kl_coefficient=0.05, entropy_coefficient=0.03, length_norm=LONGEST,
            **CORRECTIONS[name],
        )  # fmt: skip
        check(data(0), case, o)


@pytest.mark.parametrize("estimator", aggregate.KL_ESTIMATORS)
@pytest.mark.parametrize("bias", [False, True])
def test_kl_estimators(estimator, bias):
    o = ObjectiveOptions(kl_coefficient=0.5, kl_estimator=estimator, kl_bias_correction=bias)
    check(data(3), "ppo", o)


@pytest.mark.parametrize("case", ["ppo", "reinforce", "gspo"])
@pytest.mark.parametrize("name", ["none", "token", "sequence", "reject", "off_policy"])
def test_bypass_takes_the_sampler_as_the_old_policy(case, name):
    o = of(case, old_policy="rollout", **CORRECTIONS[name])
    check(data(4), case, o)


@pytest.mark.parametrize("rule", correction.REJECTIONS)
def test_every_rejection_rule(rule):
    for high in (0.2, 0.7, 1.5):
        d = data(5)
        bound = 1 + high if rule.endswith("k1") else high
        drift = d["old"] - d["b"]
        keep = correction.rejection_mask(drift[d["M"] > 0], seq_of(d), len(LENGTHS), (R(rule, bound),))
        want = ~reference.rejected(drift, d["M"], rule, bound, None)
        assert torch.equal(keep, want[d["M"] > 0])


def test_wide_ratios_are_clamped_as_verl_does():
    d = data(6, spread=0.0)
    d["old"] = d["lp"] - 40
    d["A"] = -d["A"].abs()
    got, grad, *_ = ours(d, ObjectiveOptions(kl_coefficient=0))
    want = (-d["A"] * 3.0 * d["M"]).sum() / d["M"].sum()  # e^20 is clipped by the dual clip
    assert abs(float(got - want)) < 1e-9
    assert float(grad.abs().max()) == 0


# docs: troubleshooting.md A step that depends on how the batch was split
@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("name", ["none", "token_norm", "sequence_norm", "both", "entropy_top", "off_policy"])
def test_micro_batches_and_token_order_do_not_matter(case, name):
    o = of(
        case, aggregation="seq-mean-token-mean", entropy_coefficient=0.03, kl_coefficient=0.1, **CORRECTIONS[name],
    )  # fmt: skip
    d = data(8)
    whole, grad, *_ = ours(d, o)
    for parts in ([[0], [1], [2], [3], [4], [5]], [[5, 0], [2, 4, 1], [3]], [[3, 1, 4], [0, 2, 5]]):
        total, part_grad, *_ = ours(d, o, parts, order=1)
        assert abs(float(total - whole)) <= 1e-12
        assert float((grad - part_grad).abs().max()) <= 1e-12


def test_defaults_are_verls_grpo():
    o = ObjectiveOptions()
    assert o.loss.name == "ppo"
    assert (o.constants.clip_low, o.constants.clip_high, o.constants.dual_clip) == (0.2, 0.2, 3.0)
    assert (o.aggregation, o.kl_estimator, o.kl_coefficient, o.entropy_coefficient) == ("token-mean", "k3", 0.001, 0.0)
    assert (o.old_policy, o.importance, o.importance_high) == ("trainer", "none", 2.0)


def test_aggregations_have_one_meaning_each():
    assert set(aggregate.AGGREGATION_ALIASES.values()) <= set(aggregate.AGGREGATIONS)
    for spec in LOSSES.specs.values():
        assert set(spec.aggregations or (spec.aggregation,)) <= set(aggregate.AGGREGATIONS), spec.name


def test_kl_in_loss_uses_every_token():
    d = data(9)
    base = ObjectiveOptions(kl_coefficient=0.3, off_policy_threshold=-100.0)
    d["A"] = -d["A"].abs()
    total, grad, *_ = ours(d, base)
    none, _, *_ = ours(d, dataclasses.replace(base, kl_coefficient=0.0))
    assert float(none) == 0 and float(total) > 0 and float(grad.abs().sum()) > 0
