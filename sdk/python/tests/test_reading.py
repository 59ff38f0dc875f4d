"""What is usual in a group is read quickly; what is unusual must be read, or refused, as ever."""

import math

import pytest

from recipe_sdk.groups import GroupRejected, ReadOptions, read_group


def read(tokens=(5, 6, 7, 8), mask=(-100, 6, 7, 8), logprobs=(1.0, -0.5, -1.5, -2.5)):
    """The one completion of a group."""
    raw = {"tokens": [list(tokens)], "masks": [list(mask)], "scores": [1.0], "inference_logprobs": [list(logprobs)]}
    return read_group(raw, ReadOptions()).completions[0]


@pytest.mark.parametrize(("mask", "positions"), [
    ((-100, 6, 7, 8), [1, 2, 3]),
    ((5, 6, 7, 8), [1, 2, 3]),  # nothing predicts the first
    ((-100, 6, -100, 8), [1, 3]),
    ((-100, 6, 7, -100), [1, 2]),
    ((5, -100, -100, 8), [3]),
    ((-100, -100.0, 7, 8), [2, 3]),
    ((-100,) * 4, []),
])  # fmt: skip
def test_positions_and_their_values(mask, positions):
    c = read(mask=mask)
    assert c.positions == positions
    assert c.behavior == [(1.0, -0.5, -1.5, -2.5)[t] for t in positions]


@pytest.mark.parametrize(("logprobs", "behavior"), [
    ((1.0, -0.5, -1, -2.5), [-0.5, -1.0, -2.5]),  # an integer among them
    ((1.0, -0.5, 5e-4, -2.5), [-0.5, 5e-4, -2.5]),  # rounding
    ((1.0, -0.5, 1.0, -2.5), [-0.5, None, -2.5]),  # the placeholder
])  # fmt: skip
def test_log_probabilities(logprobs, behavior):
    got = read(logprobs=logprobs).behavior
    assert [None if math.isnan(v) else v for v in got] == behavior
    assert all(type(v) is float for v in got)


@pytest.mark.parametrize(("change", "reason"), [
    ({"logprobs": (1.0, -0.5, math.nan, -2.5)}, "not_finite"),
    ({"logprobs": (1.0, -0.5, -math.inf, -2.5)}, "not_finite"),
    ({"logprobs": (1.0, -0.5, -1e39, -2.5)}, "not_finite"),
    ({"logprobs": (1.0, -0.5, -(10**400), -2.5)}, "not_finite"),
    ({"logprobs": (1.0, -0.5, False, -2.5)}, "not_finite"),
    ({"logprobs": (1.0, -0.5, "-1", -2.5)}, "not_finite"),
    ({"logprobs": (1.0, -0.5, 0.7, -2.5)}, "positive_logprob"),
    ({"logprobs": (1.0, -0.5, -2.5)}, "shape"),
    ({"tokens": (5, 6, -1, 8)}, "tokens"),
    ({"tokens": (5, 6, 2**31, 8)}, "tokens"),
    ({"tokens": (5, 6, 7.0, 8)}, "tokens"),
    ({"tokens": (5, 6, None, 8)}, "tokens"),
    ({"tokens": (), "mask": ()}, "tokens"),
])  # fmt: skip
def test_what_is_refused(change, reason):
    with pytest.raises(GroupRejected) as e:
        read(**change)
    assert e.value.reason == reason
