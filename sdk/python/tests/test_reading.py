"""What is usual in a group is read quickly; what is unusual must be read, or refused, as ever."""

import json
import math
import random
from collections import Counter

import numpy as np
import pytest

from recipe_sdk.groups import GroupRejected, ReadOptions, differ, read_group
from recipe_sdk.rejected import RejectedGroups


def group(tokens=(5, 6, 7, 8), mask=(-100, 6, 7, 8), logprobs=(1.0, -0.5, -1.5, -2.5)):
    """A group of one completion, as JSON has it."""
    return {"tokens": [list(tokens)], "masks": [list(mask)], "scores": [1.0], "inference_logprobs": [list(logprobs)]}


def read(**change):
    """The one completion of a group."""
    return read_group(group(**change), ReadOptions()).completions[0]


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
    assert c.positions.tolist() == positions
    assert c.behavior.tolist() == [(1.0, -0.5, -1.5, -2.5)[t] for t in positions]


@pytest.mark.parametrize(("logprobs", "behavior"), [
    ((1.0, -0.5, -1, -2.5), [-0.5, -1.0, -2.5]),  # an integer among them
    ((1.0, -0.5, 5e-4, -2.5), [-0.5, 5e-4, -2.5]),  # rounding
    ((1.0, -0.5, 1.0, -2.5), [-0.5, None, -2.5]),  # the placeholder
])  # fmt: skip
def test_log_probabilities(logprobs, behavior):
    got = read(logprobs=logprobs).behavior
    assert [None if math.isnan(v) else v for v in got] == behavior
    assert got.dtype == np.float64


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


OPTIONS = [
    ReadOptions(), ReadOptions(need_logprobs=True), ReadOptions(need_ref=True), ReadOptions(max_response=3),
    ReadOptions(advantage_layout="response"), ReadOptions(mask_truncated=True, eos=frozenset([8])),
    ReadOptions(vocabulary=9),
]  # fmt: skip


def outcome(raw, options):
    """What comes of a group: its completions, or the reason why it is refused."""
    try:
        done = read_group(raw, options).completions
    except GroupRejected as e:
        return e.reason, str(e)
    return [{k: v.tolist() if isinstance(v, np.ndarray) else v for k, v in vars(c).items()} for c in done]


def test_columns_are_read_like_lists():
    """An Arrow stream brings read-only arrays in the types of columns.go where JSON brings lists."""
    types = {"tokens": np.int32, "masks": np.int32, "inference_logprobs": np.float64, "ref_logprobs": np.float64,
             "advantages": np.float64}  # fmt: skip
    r, seen = random.Random(3), Counter()
    for _ in range(400):
        n = r.randrange(1, 6)

        def numbers(n=n):
            odd = r.choice([[-0.5], [-0.5, 0.0, 5e-4], [-0.5, 1.0], [-0.5, 0.7], [-0.5, 1e39], [-0.5, math.nan]])
            return [[r.choice(odd) for _ in range(r.choice([n, n, n, n, 1, 0]))]]

        tokens = [r.choice([5, 8]) for _ in range(n)]
        raw = group(tokens, [r.choice([-100, token]) for token in tokens])
        raw["tokens"][0][0] = r.choice([5] * 9 + [-1])
        raw |= {name: numbers() for name in types if name not in ("tokens", "masks") and r.random() < 0.7}
        columns = {k: [np.array(x, types[k]) for x in v] if k in types else v for k, v in raw.items()}
        for k in types.keys() & columns.keys():
            columns[k][0].flags.writeable = False
        for options in OPTIONS:
            want = outcome(raw, options)
            assert repr(outcome(columns, options)) == repr(want)
            seen[want[0] if isinstance(want, tuple) else "read"] += 1
    assert seen.keys() >= {"read", "tokens", "shape", "not_finite", "positive_logprob", "missing_logprobs", "too_long",
                           "advantage_length", "missing_ref_logprobs"}, seen  # fmt: skip


def test_a_group_of_columns_can_be_set_aside_and_named(tmp_path):
    raw = group() | {"tokens": [np.array([5, 6, 7, 8], np.int32)], "masks": [np.array([-100, 6, 7, 8], np.int32)]}
    assert RejectedGroups(tmp_path).keep(3, raw, "shape: why")
    (kept,) = (json.loads(p.read_text()) for p in tmp_path.iterdir())
    assert kept["group"] == group() and kept["batch"] == 3
    assert "[5, 6, 7, 8]" in read_group(raw, ReadOptions()).label()


@pytest.mark.parametrize(
    ("mask", "place"),
    [
        ([0, 0, 1, 1], "masks[0][0] is 0, expected -100"),
        ([False, False, True, True], "masks[0][0] is 0"),
        ([-1, -1, 7, 8], "masks[0][0] is -1"),
        ([-100, 7, 8, -100], "masks[0][1] is 7, expected -100 (not trained) or the token's own id, 6"),
    ],
)
def test_other_masks_are_refused(mask: list[int], place: str) -> None:
    raw = {"tokens": [[5, 6, 7, 8]], "masks": [mask], "scores": [1.0]}
    with pytest.raises(GroupRejected) as e:
        read_group(raw, ReadOptions())
    assert e.value.reason == "mask" and place in str(e.value)


@pytest.mark.parametrize(
    ("override", "last", "trained"),
    [({"finish_reason": "stop"}, 8, 2), ({"finish_reason": "length"}, 2, 0), ({}, 8, 0), ({}, 2, 2)],
)
def test_truncation_goes_by_the_finish_reason(override: dict[str, str], last: int, trained: int) -> None:
    raw = {"tokens": [[5, 6, 7, last]], "masks": [[-100, -100, 7, last]], "scores": [1.0], "overrides": [override]}
    made = read_group(raw, ReadOptions(mask_truncated=True, eos=frozenset({2}))).completions[0]
    assert len(made.positions) == trained


def test_what_has_failed_has_no_score() -> None:
    raw = {"tokens": [[5, 6]], "masks": [[-100, -100]], "scores": [1.0], "overrides": [{"failed": "it hangs"}]}
    made = read_group(raw, ReadOptions()).completions[0]
    assert np.isnan(made.score) and len(made.positions) == 0


def test_scores_that_differ_by_rounding_are_equal() -> None:
    assert not differ([0.1 + 0.2, 0.3, float("nan")]) and differ([0.0, 1e-6]) and not differ([])


def parts(*rollouts, scores=None):
    """A group whose sequences are parts of the rollouts with these numbers; None: of none."""
    n = len(rollouts)
    tokens = [[5, 6, *range(7, 8 + i % 3)] for i in range(n)]
    return {"tokens": tokens, "masks": [[-100, *t[1:]] for t in tokens],
            "scores": scores or [float(rollouts.index(r)) if r is not None else 0.5 for r in rollouts],
            "overrides": [{} if r is None else {"rollout": r} for r in rollouts]}  # fmt: skip


@pytest.mark.parametrize(("rollouts", "numbers", "scores"), [
    ((0, 0, 1), [0, 0, 1], [0.0, 2.0]),
    ((7, 7, 7), [0, 0, 0], [0.0]),
    ((None, 1, 1, None, None), [0, 1, 1, 2, 3], [0.5, 1.0, 0.5, 0.5]),
    ((3, 2), [0, 1], [0.0, 1.0]),
])  # fmt: skip
def test_parts_of_a_rollout(rollouts, numbers, scores):
    g = read_group(parts(*rollouts), ReadOptions(parts=True))
    assert [c.rollout for c in g.completions] == numbers
    assert g.scores == scores and g.left_out == 0


def test_one_sequence_a_rollout():
    g = read_group(parts(0, 0, 0, None, 1, 1), ReadOptions())
    assert [(c.rollout, c.sequence) for c in g.completions] == [(0, 2), (1, 3), (2, 5)]
    assert g.left_out == 3


@pytest.mark.parametrize(("raw", "text"), [
    (parts(0, 1, 0), "the parts of a rollout follow each other"),
    (parts(0, 0, scores=[1.0, 0.5]), r"scores\[1\] is 0.5, and another part of rollout 0 has 1"),
    (parts("one", "one"), r"overrides\[0\].rollout is 'one', expected the number of a rollout"),
    (parts(-1), r"overrides\[0\].rollout is -1"),
    (parts(True), r"overrides\[0\].rollout is True"),
])  # fmt: skip
def test_parts_that_contradict_each_other(raw, text):
    with pytest.raises(GroupRejected, match=text) as e:
        read_group(raw, ReadOptions(parts=True))
    assert e.value.reason == "rollout"
