"""Rollouts of several sequences train as one sequence with the same tokens would: a rollout counts once."""

import copy
import math
import random

import pytest
import torch
from recipe_sdk.groups import ReadOptions, read_group
from recipe_sdk.testing import VOCABULARY, make_group

from worker import batch as batches
from worker.advantage import ESTIMATORS
from worker.aggregate import AGGREGATIONS
from worker.metrics import Clock

from .test_model import CPU, stepper

PARTS = ReadOptions(parts=True)


def conversation(seed):
    """A group whose first and third rollout have two answers each, with a message of the environment between."""
    r, group = random.Random(seed), make_group(seed)
    for i in (0, 2):
        between = [r.randrange(1, VOCABULARY) for _ in range(3)]
        answer = [r.randrange(1, VOCABULARY) for _ in range(r.randrange(1, 5))]
        group["tokens"][i] += between + answer
        group["masks"][i] += [-100] * 3 + answer
        group["inference_logprobs"][i] += [1.0] * 3 + [-4.1] * len(answer)
    return group


def divided(group):
    """The same rollouts with a sequence an answer: each is read after all that was before it."""
    out = {**copy.deepcopy(group), "tokens": [], "masks": [], "inference_logprobs": [], "scores": [], "overrides": []}
    for i, mask in enumerate(group["masks"]):
        starts = [t for t in range(1, len(mask)) if mask[t] != -100 and mask[t - 1] == -100]
        ends = [next((t for t in range(s, len(mask)) if mask[t] == -100), len(mask)) for s in starts]
        for start, end in zip(starts, ends, strict=True):
            out["tokens"].append(group["tokens"][i][:end])
            out["masks"].append([-100] * start + mask[start:end])
            out["inference_logprobs"].append([1.0] * start + group["inference_logprobs"][i][start:end])
            out["scores"].append(group["scores"][i])
            out["overrides"].append({"rollout": i})
    return out


def both():
    whole = [conversation(k) for k in range(3)]
    one = batches.build([read_group(g, PARTS) for g in whole])
    two = batches.build([read_group(divided(g), PARTS) for g in whole])
    assert (one.n, two.n, two.rollouts) == (12, 18, 12)
    return one, two


@pytest.mark.parametrize("aggregation", AGGREGATIONS)
def test_a_rollout_weighs_the_same_in_parts(tmp_path, tiny, aggregation):
    loss = {"aggregation": aggregation, "length_norm": 7.0} if "norm" in aggregation else {"aggregation": aggregation}
    found = []
    for b in both():
        s = stepper(tmp_path, tiny, loss=loss, kl={"coefficient": 0.0})
        report = s.train(b, 0, Clock(CPU))
        found.append([report["loss/total"], report["grad_norm"]])
    assert found[0] == pytest.approx(found[1], rel=1e-7)
    assert math.isfinite(found[0][1]) and found[0][1] > 0


@pytest.mark.parametrize(
    "name", sorted(n for n, s in ESTIMATORS.specs.items() if not {"baseline", "objectives"} & set(s.needs))
)
def test_an_estimator_sees_rollouts(tmp_path, tiny, name):
    found = []
    for b in both():
        s = stepper(tmp_path, tiny, advantages={"estimator": name}, kl={"coefficient": 0.0})
        report = s.train(b, 0, Clock(CPU))
        found.append((s.tokens["advantages"], report["reward/mean"], report["reward/std"]))
    torch.testing.assert_close(found[0][0], found[1][0])
    assert found[0][1:] == found[1][1:]


def test_an_optimizer_batch_counts_rollouts():
    one, two = both()
    for size in (0, 4, 5, 8):
        assert [len(p) for p in batches.split(one, size)] == [
            len({int(two.rollout[i]) for i in p}) for p in batches.split(two, size)
        ]


def test_a_failed_rollout_of_parts_is_in_no_statistic(tmp_path, tiny):
    group = divided(conversation(1))
    for i in (0, 1):  # the first rollout
        group["overrides"][i]["failed"] = "no score"
        group["masks"][i] = [-100] * len(group["masks"][i])
    b = batches.build([read_group(group, PARTS)])
    s = stepper(tmp_path, tiny, kl={"coefficient": 0.0})
    report = s.train(b, 0, Clock(CPU))
    assert report["adv/left_out"] == 1
    assert report["reward/mean"] == pytest.approx(sum(group["scores"][k] for k in (2, 3, 5)) / 3)
    assert b.score[b.first].isnan().tolist() == [True, False, False, False]
