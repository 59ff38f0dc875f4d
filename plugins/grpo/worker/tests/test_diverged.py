"""A run whose gradients are no longer finite ends, and one that recovers goes on."""

from __future__ import annotations

import pytest
import torch
from recipe_sdk import errors
from recipe_sdk.testing import make_group

from worker import checks


def huge(at):
    """Batches of which those that `at` names have advantages whose gradients are infinite."""

    def batch(k):
        group = make_group(k)
        if at(k):
            group["advantages"] = [[3e38]] * len(group["tokens"])
        return [group]

    return batch


def test_a_run_that_learns_nothing_any_more_ends(make, api):
    w = make(api(batch=huge(lambda k: k >= 2)).url, steps=40)
    w.load()
    for _ in range(2):
        w.train_one()
    before = [p.clone() for p in w.trainer.policy.parameters()]
    with pytest.raises(errors.DivergedError, match="the last 10 batches"):
        w.trainer.loop()
    assert all(torch.equal(a, b) for a, b in zip(before, w.trainer.policy.parameters(), strict=True))
    assert [m["optimizer_skipped"] for m in w.metrics()] == [0, 0] + [1] * 10, "each is in the record"


def test_a_run_that_recovers_goes_on(make, api):
    w = make(api(batch=huge(lambda k: k % checks.MOST_LEFT_OUT)).url, steps=25)()
    assert w.bridge.step == 25
