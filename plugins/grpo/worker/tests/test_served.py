"""Served against trained log-probabilities on real rollouts, fresh samples apart from stale ones; and what the default
correction does to a stale batch."""

import copy

import pytest
import torch
from recipe_sdk.groups import ReadOptions, read_group
from recipe_sdk.testing import make_group

from worker import batch as batches
from worker.metrics import Clock

from .test_model import stepper

CPU = torch.device("cpu")


def sampled(s, seeds, version, shift=0.0):
    """Groups whose sampler was the stepper's own policy, off by `shift`, at a policy version."""
    raw = [make_group(k) for k in seeds]
    b = batches.build([read_group(g, ReadOptions()) for g in raw])
    lp = s.scores(s.policy, b)["lp"]
    at = 0
    for g in raw:
        g["policy_version"] = version
        lists = []
        for tokens, mask in zip(g["tokens"], g["masks"], strict=True):
            row = [1.0] * len(tokens)
            for t in [t for t, m in enumerate(mask) if m != -100]:
                row[t], at = float(lp[at]) + shift, at + 1
            lists.append(row)
        g["inference_logprobs"] = lists
    return raw


def read(raw):
    return batches.build([read_group(g, ReadOptions()) for g in raw])


# docs: troubleshooting.md Sampler and trainer drift apart on what the fixed text does not cover
@pytest.mark.parametrize("more", [{}, {"data": {"mini_batch_size": 4}}, {"correction": {"recompute": "always"}}])
def test_fresh_and_stale_samples_are_measured_apart(tmp_path, tiny, more):
    s = stepper(tmp_path, tiny, **more)
    raw = sampled(s, [1], 7, -0.01) + sampled(s, [2], 5, -1.0) + sampled(s, [3], [6, 7], -0.5)
    if "data" in more:  # before the first optimizer step, and of the whole batch
        raw = raw[1:] + raw[:1]
    m = s.train(read(raw), 0, Clock(CPU), 7)
    tokens = [sum(x != -100 for mask in g["masks"] for x in mask) for g in raw]
    assert m["mismatch/fresh_tokens"] + m["mismatch/stale_tokens"] == sum(tokens)
    assert m["mismatch/fresh_mean_abs"] == pytest.approx(0.01, abs=1e-4)
    assert m["mismatch/fresh_max_abs"] == pytest.approx(0.01, abs=1e-4)
    assert m["mismatch/fresh_kl"] == pytest.approx(5e-5, rel=0.1) and m["mismatch/fresh_clipped"] == 0
    assert m["mismatch/stale_max_abs"] == pytest.approx(1.0, abs=1e-3)
    # e^1 is above importance_high = 2, e^.5 is not
    whole = m["mismatch/stale_clipped"] * m["mismatch/stale_tokens"]
    assert whole == pytest.approx(tokens[1 if "data" not in more else 0])


@pytest.mark.parametrize(("shift", "told"), [(-0.02, 0), (-0.3, 1)])
def test_a_sampler_that_is_another_policy_is_told(tmp_path, tiny, shift, told):
    s = stepper(tmp_path, tiny)
    report = s.train(read(sampled(s, [1], 7, shift)), 0, Clock(CPU), 7)
    assert sum("the sampler is another policy" in w for w in report["warnings"]) == told


def test_stale_samples_are_known_by_their_policy(tmp_path, tiny):
    s = stepper(tmp_path, tiny)
    assert not s.train(read(sampled(s, [1], 5, -0.3)), 0, Clock(CPU), 7)["warnings"]


def test_nothing_is_fresh_if_weights_are_not_served(tmp_path, tiny):
    s = stepper(tmp_path, tiny)
    m = s.train(read(sampled(s, [1], 7)), 0, Clock(CPU), None)
    assert m["mismatch/fresh_tokens"] == 0 and m["mismatch/stale_tokens"] > 0
    assert "mismatch/fresh_mean_abs" not in m


def test_groups_without_a_version_are_in_neither(tmp_path, tiny):
    s = stepper(tmp_path, tiny)
    unknown, silent = sampled(s, [1], 7)[0], sampled(s, [2], 7)[0]
    del unknown["policy_version"], silent["inference_logprobs"]
    m = s.train(read([unknown, silent]), 0, Clock(CPU), 7)
    assert m["mismatch/fresh_tokens"] == m["mismatch/stale_tokens"] == 0
    assert "without the sampler's log-probabilities" in m["warnings"][0]


def gradient(s, raw):
    """What a step does to the weights, by plain descent."""
    before = [p.detach().clone() for p in s.policy.parameters()]
    s.train(read(raw), 0, Clock(CPU), 7)
    return torch.cat([(p.detach() - q).flatten() for p, q in zip(s.policy.parameters(), before, strict=True)])


SGD = {
    "optimizer": {"name": "sgd", "learning_rate": 0.1, "grad_clip": 0.0, "weight_decay": 0.0},
    "kl": {"coefficient": 0},
}


# docs: troubleshooting.md Stale samples that nothing corrects
def test_one_step_a_batch_corrects_stale_samples(tmp_path, tiny):
    """pi / pi_sampler = 1.5 on every token makes the step 1.5 times as large, 3 is cut at 2; without correction the ratio
    is 1 whatever the sampler said, which is what the default was."""
    make = lambda **more: stepper(tmp_path, tiny, **SGD, **more)  # noqa: E731
    first = make()
    exact = sampled(first, [1, 2], 5)

    def shifted(shift):
        raw = copy.deepcopy(exact)
        for g in raw:
            g["inference_logprobs"] = [
                [x if m == -100 else x - shift for x, m in zip(row, mask, strict=True)]
                for row, mask in zip(g["inference_logprobs"], g["masks"], strict=True)
            ]
        return raw

    base = gradient(first, exact)
    log = lambda x: float(torch.log(torch.tensor(x)))  # noqa: E731
    off = {"correction": {"mismatch_limit": None}}
    assert torch.allclose(gradient(make(**off), shifted(log(1.5))), 1.5 * base, rtol=1e-3, atol=1e-7)
    assert torch.allclose(gradient(make(**off), shifted(log(3.0))), 2.0 * base, rtol=1e-3, atol=1e-7)
    none = {"correction": {"mismatch_limit": None, "importance": "none"}}
    assert torch.allclose(gradient(make(**none), shifted(log(3.0))), base, rtol=1e-3, atol=1e-7)
    assert float(base.abs().max()) > 1e-5


def test_the_default_correction_adds_no_forward_pass(tmp_path, tiny):
    s = stepper(tmp_path, tiny, kl={"coefficient": 0})
    raw = sampled(s, [1], 7)
    s.scores = None  # calling it fails
    m = s.train(read(raw), 0, Clock(CPU), 7)
    assert m["importance/mean"] == pytest.approx(1.0, abs=1e-4) and m["mismatch/fresh_max_abs"] < 1e-4
