"""Numbers that other projects' own functions gave, losses and gradients (golden/make_verl.py), and numbers worked out by
hand from the papers where no other project is the measure."""

import json
import math
from pathlib import Path

import pytest
import torch

from worker import aggregate, objective
from worker.loss import LOSSES, LossOptions
from worker.objective import ObjectiveOptions

VERL = json.loads((Path(__file__).parent / "golden" / "verl.json").read_text())
INPUT = {k: torch.tensor(v, dtype=torch.float64) for k, v in VERL["inputs"].items()}


def name_of(case):
    return f"{case['loss']}-{case['aggregation']}-{'weighted' if case['weighted'] else 'plain'}"


@pytest.mark.parametrize("case", VERL["losses"], ids=name_of)
def test_losses_and_gradients_are_verls(case):
    # verl uses its own aggregation for these whatever is configured; here another one is refused
    spec = LOSSES.specs[case["loss"]]
    constants = LossOptions(
        clip_low=VERL["clip_low"], clip_high=VERL["clip_high"], clip_cov_bounds=(-50.0, -40.0), kl_cov_ratio=0.2,
        ratio_level=spec.ratio or "token",
    )  # fmt: skip
    o = ObjectiveOptions(
        loss=spec, constants=constants, aggregation=case["aggregation"] if spec.aggregations is None else spec.aggregation,
        length_norm=VERL["length"], kl_coefficient=0.0, importance="token" if case["weighted"] else "none",
        importance_high=2.0,
    )  # fmt: skip
    lp = INPUT["lp"].clone().requires_grad_()
    plan = objective.prepare(
        o, seq=torch.tensor(VERL["sequence"]), n=VERL["sequences"], adv=INPUT["A"], behavior=INPUT["b"],
        old=INPUT["old"], current=INPUT["lp"],
    )  # fmt: skip
    part = objective.micro_loss(o, plan, torch.arange(len(lp)), lp)
    part.total.backward()
    assert float(part.total.detach()) == pytest.approx(case["value"], abs=1e-10)
    assert lp.grad.tolist() == pytest.approx(case["gradient"], abs=1e-10)


@pytest.mark.parametrize("case", VERL["kl"], ids=lambda c: c["estimator"])
def test_kl_estimators_are_verls(case):
    lp = INPUT["lp"].clone().requires_grad_()
    value = aggregate.kl(lp, INPUT["ref"], aggregate.KL_ALIASES.get(case["estimator"], case["estimator"]))
    value.sum().backward()
    assert value.tolist() == pytest.approx(case["value"], abs=1e-10)
    assert lp.grad.tolist() == pytest.approx(case["gradient"], abs=1e-10)


# One token a row: probability under the sampler, the proximal and the current policy, advantage; then by hand the loss
# -w min(u A, clip(u) A) with w = proximal / sampler, u = current / proximal, clip 0.2, and its derivative by the current
# log-probability: -w u A where the clip does not hold, else 0.
DECOUPLED = [
    (0.2, 0.3, 0.3, 1.0, -1.5, -1.5),  # on the proximal policy: u = 1, w = 1.5
    (0.2, 0.3, 0.33, 2.0, -3.3, -3.3),  # u = 1.1
    (0.2, 0.3, 0.45, 1.0, -1.8, 0.0),  # u = 1.5, clipped at 1.2
    (0.6, 0.3, 0.15, 1.0, -0.25, -0.25),  # u = 0.5, w = 0.5: falling with A > 0 is not clipped
    (0.6, 0.3, 0.15, -1.0, 0.4, 0.0),  # u = 0.5, clipped at 0.8
    (0.5, 0.1, 0.11, -1.0, 0.22, 0.22),
    (0.1, 0.5, 0.55, -1.0, 5.5, 5.5),  # w = 5
]


@pytest.mark.parametrize("cap,row", [(None, r) for r in DECOUPLED] + [(2.0, DECOUPLED[0]), (2.0, DECOUPLED[6])])
def test_decoupled_ppo_is_the_papers(cap, row):
    sampler, proximal, current, a, value, slope = row
    if cap is not None:  # the bounded weight is a constant factor
        shrink = min(proximal / sampler, cap) / (proximal / sampler)
        value, slope = value * shrink, slope * shrink
    o = ObjectiveOptions(
        loss=LOSSES.specs["decoupled_ppo"], constants=LossOptions(dual_clip=None), kl_coefficient=0.0,
        importance="token", importance_high=cap,
    )  # fmt: skip
    lp = torch.tensor([math.log(current)], dtype=torch.float64, requires_grad=True)
    one = lambda p: torch.tensor([math.log(p)], dtype=torch.float64)  # noqa: E731
    plan = objective.prepare(
        o, seq=torch.tensor([0]), n=1, adv=torch.tensor([a], dtype=torch.float64), behavior=one(sampler),
        old=one(proximal),
    )  # fmt: skip
    part = objective.micro_loss(o, plan, torch.tensor([0]), lp)
    part.total.backward()
    assert float(part.total.detach()) == pytest.approx(value, abs=1e-12)
    assert float(lp.grad[0]) == pytest.approx(slope, abs=1e-12)


def test_with_one_step_the_current_policy_is_proximal():
    """One optimizer step per batch: no forward pass beforehand, and the weight is computed from the policy itself."""
    o = ObjectiveOptions(loss=LOSSES.specs["decoupled_ppo"], kl_coefficient=0.0, importance="token")
    assert not o.needs_current
    sampler = torch.log(torch.tensor([0.2, 0.9], dtype=torch.float64))
    lp = torch.log(torch.tensor([0.3, 0.09], dtype=torch.float64)).requires_grad_()
    adv = torch.tensor([1.0, -2.0], dtype=torch.float64)
    plan = objective.prepare(o, seq=torch.tensor([0, 0]), n=1, adv=adv, behavior=sampler)
    part = objective.micro_loss(o, plan, torch.tensor([0, 1]), lp)
    part.total.backward()
    assert lp.grad.tolist() == pytest.approx([-0.5 * 1.5, 0.5 * 2 * 0.1], abs=1e-12)


@pytest.mark.parametrize("name", ["ppo", "gspo", "cispo", "sapo", "gmpo", "reinforce", "vespo", "decoupled_ppo"])
@pytest.mark.parametrize("level", ["token", "sequence"])
def test_weights_equal_those_of_an_extra_pass(name, level):
    """The default correction costs no forward pass and changes no number, however the batch is split."""
    o = ObjectiveOptions(loss=LOSSES.specs[name], kl_coefficient=0.0, importance=level)
    seq = torch.tensor(VERL["sequence"])
    common = dict(seq=seq, n=VERL["sequences"], adv=INPUT["A"], behavior=INPUT["b"])
    found = []
    for current in (None, INPUT["lp"]):
        plan = objective.prepare(o, **common, current=current)
        assert (plan.weight is None) == (current is None)
        lp = INPUT["lp"].clone().requires_grad_()
        for rows in ([0, 1, 2], [3], [4, 5]):
            index = torch.nonzero(torch.isin(seq, torch.tensor(rows))).flatten()
            objective.micro_loss(o, plan, index, lp[index]).total.backward()
        found.append(lp.grad)
    assert torch.allclose(found[0], found[1], rtol=0, atol=1e-14) and float(found[0].abs().max()) > 0


def test_tokens_without_log_probabilities_weigh_one():
    o = ObjectiveOptions(kl_coefficient=0.0, importance="token", importance_lenient=True)
    assert not o.needs_behavior
    lp = torch.tensor([-1.0, -1.0], dtype=torch.float64, requires_grad=True)
    behavior = torch.tensor([math.nan, -1.5], dtype=torch.float64)
    adv = torch.ones(2, dtype=torch.float64)
    plan = objective.prepare(o, seq=torch.tensor([0, 0]), n=1, adv=adv, behavior=behavior)
    objective.micro_loss(o, plan, torch.tensor([0, 1]), lp).total.backward()
    assert lp.grad.tolist() == pytest.approx([-0.5, -0.5 * math.exp(0.5)], abs=1e-12)
