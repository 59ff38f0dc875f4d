"""The data contract: what is accepted, what is refused and why, and the shift of labels."""

import copy
import math
import random

import pytest
import torch
from recipe_sdk.groups import GroupRejected, ReadOptions, read_group

from worker import batch as batches


def raw(**more):
    return {
        "tokens": [[1, 2, 3, 4, 5], [1, 2, 9]],
        "masks": [[-100, -100, 3, -100, 5], [-100, -100, 9]],
        "scores": [1.0, -1.0],
        "inference_logprobs": [[1.0, 1.0, -0.3, 1.0, -0.5], [1.0, 1.0, -0.9]],
        **more,
    }


def test_flat_vectors_belong_to_labels():
    b = batches.build([read_group(raw(ref_logprobs=[[0, 0, -1, 0, -2], [0, 0, -3]]), ReadOptions())])
    assert b.seq.tolist() == [0, 0, 1]
    assert b.behavior.tolist() == [-0.3, -0.5, -0.9]
    assert b.ref.tolist() == [-1, -2, -3]
    assert b.size == 3 and b.total_tokens == 8


# docs: troubleshooting.md Log-probabilities shifted by one, or of other tokens
def test_rows_read_the_output_before_the_label():
    b = batches.build([read_group(raw(), ReadOptions())])
    (row,) = batches.pack(b, [0, 1], 100)
    assert row.ids.tolist() == [[1, 2, 3, 4, 5, 1, 2, 9]]
    assert row.position_ids.tolist() == [[0, 1, 2, 3, 4, 0, 1, 2]]
    assert row.read.tolist() == [1, 3, 6]  # outputs that predict the labels at 2, 4 and 5 + 2
    assert row.label.tolist() == [3, 5, 9]
    assert row.index.tolist() == [0, 1, 2]
    assert row.boundaries.tolist() == [0, 5, 8]


def test_packing_respects_the_limit_and_loses_nothing():
    groups = [read_group({"tokens": [[1] * n], "masks": [[-100] + [1] * (n - 1)], "scores": [0]}, ReadOptions())
              for n in (9, 3, 4, 8, 2, 30, 7)]  # fmt: skip
    b = batches.build(groups)
    rows = batches.pack(b, range(b.n), 12)
    assert sorted(i for r in rows for i in r.sequences) == list(range(7))
    assert all(r.ids.shape[1] <= 12 or len(r.sequences) == 1 for r in rows)
    assert sorted(torch.cat([r.index for r in rows]).tolist()) == list(range(b.size))
    parts = [batches.share(rows, rank, 3) for rank in range(3)]
    assert len({len(p) for p in parts}) == 1
    assert sorted(i for p in parts for r in p if r for i in r.sequences) == list(range(7))


def test_split_keeps_groups_whole():
    b = batches.build([read_group(raw(), ReadOptions()) for _ in range(5)])
    assert batches.split(b, 4) == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]
    assert batches.split(b, 0) == [list(range(10))]
    assert batches.split(b, 1) == [[0, 1], [2, 3], [4, 5], [6, 7], [8, 9]]


def test_a_trained_first_token_has_no_prediction():
    g = read_group({"tokens": [[4, 5]], "masks": [[4, 5]], "scores": [1], "advantages": [[7.0, 8.0]]}, ReadOptions())
    b = batches.build([g])
    assert b.positions[0].tolist() == [1] and b.sent.tolist() == [8.0]


@pytest.mark.parametrize("change,reason", [
    ({"masks": [[-100, -100, 3, -100], [-100, -100, 9]]}, "shape"),
    ({"scores": [1.0]}, "shape"),
    ({"scores": [1.0, math.inf]}, "not_finite"),
    ({"scores": [1.0, "x"]}, "not_finite"),
    ({"scores": [1.0, -2e15]}, "score"),
    ({"overrides": [{"rewards": [1e16]}, {}]}, "score"),
    ({"group_overrides": {"reward_baseline": 1e16}}, "score"),
    ({"tokens": [[1, 2, 3, 4, 500], [1, 2, 9]]}, "tokens"),
    ({"tokens": [[], [1, 2, 9]], "masks": [[], [1, 2, 9]]}, "tokens"),
    ({"inference_logprobs": [[1.0, 1.0, -0.3], [1.0, 1.0, -0.9]]}, "shape"),
    ({"inference_logprobs": None}, "missing_logprobs"),
    ({"inference_logprobs": [[1.0, 1.0, 1.0, 1.0, -0.5], [1.0, 1.0, -0.9]]}, "missing_logprobs"),
    ({"inference_logprobs": [[1.0, 1.0, 0.4, 1.0, -0.5], [1.0, 1.0, -0.9]]}, "positive_logprob"),
    ({"inference_logprobs": [[1.0, 1.0, math.nan, 1.0, -0.5], [1.0, 1.0, -0.9]]}, "not_finite"),
    ({"generation_params": {"temperature": 0}}, "temperature"),
    ({"overrides": [{}]}, "shape"),
])  # fmt: skip
def test_refusals_have_reasons(change, reason):
    with pytest.raises(GroupRejected) as e:
        read_group(raw(**change), ReadOptions(need_logprobs=True, vocabulary=100))
    assert e.value.reason == reason


ODD = [None, True, 3, -1, 0.5, "x", [], [1], {}, {"a": 1}, [[]], [None], math.nan, math.inf, 10**25, 10**400, [[1]], [{}],
       ["x"] * 2, [[1.0]] * 2, [3] * 2, [{"rewards": [None, "x"]}] * 2, [{"rewards": 3}] * 2, [{"rewards": {"a": "x"}}] * 2,
       {"temperature": "x"}, {"temperature": math.inf}, {"reward_baseline": "x"}, {"reward_baseline": [1]}]  # fmt: skip
FIELDS = ("tokens", "masks", "scores", "inference_logprobs", "ref_logprobs", "advantages", "overrides",
          "generation_params", "group_overrides", "values", "env_id", "policy_version")  # fmt: skip


def test_any_input_is_read_or_refused():
    """A group that raises anything else would end the run."""
    r, outcomes = random.Random(1), {True: 0, False: 0}
    for _ in range(6000):
        group = copy.deepcopy(raw())
        for _ in range(r.randrange(1, 3)):
            name = r.choice(FIELDS)
            value = group.get(name)
            if isinstance(value, list) and value and r.random() < 0.6:
                k = r.randrange(len(value))
                if isinstance(value[k], list) and value[k] and r.random() < 0.5:
                    value[k][r.randrange(len(value[k]))] = r.choice(ODD)
                else:
                    value[k] = r.choice(ODD)
            else:
                group[name] = r.choice(ODD)
        need = r.random() < 0.5
        try:
            b = batches.build([read_group(group, ReadOptions(vocabulary=100, need_logprobs=need, need_ref=need))])
        except GroupRejected:
            outcomes[False] += 1
        else:
            assert b.size == len(b.value) == len(b.behavior)
            outcomes[True] += 1
    assert min(outcomes.values()) > 400


def test_values_of_a_critic_belong_to_tokens():
    b = batches.build([read_group(raw(values=[[0, 1, 2, 3, 4], None]), ReadOptions())])
    assert b.value.tolist() == [2, 4, 0]
    with pytest.raises(GroupRejected, match="values has 2 entries for 5 tokens"):
        read_group(raw(values=[[1, 2], None]), ReadOptions())


def test_limits():
    for o in (ReadOptions(max_length=4), ReadOptions(max_prompt=1), ReadOptions(max_response=2)):
        with pytest.raises(GroupRejected) as e:
            read_group(raw(), o)
        assert e.value.reason == "too_long"


def test_truncated_completions_can_be_masked():
    g = read_group(raw(), ReadOptions(mask_truncated=True, eos=frozenset({9})))
    assert [len(c.positions) for c in g.completions] == [0, 1]
    assert g.completions[0].score == 1.0


def test_temperature_precedence():
    def at(**more):
        return [c.temperature for c in read_group(raw(**more), ReadOptions(temperature=0.9)).completions]

    assert at() == [0.9, 0.9]
    assert at(group_overrides={"temperature": 0.5}) == [0.5, 0.5]
    assert at(group_overrides={"temperature": 0.5}, generation_params={"temperature": 0.6}) == [0.6, 0.6]
    assert at(generation_params={"temperature": 0.6}, overrides=[{"temperature": 0.7}, {}]) == [0.7, 0.6]


@pytest.mark.parametrize("more,want", [
    ({}, None), ({"policy_version": 4}, (4, 4)), ({"policy_version": [3, 5]}, (3, 5)),
    ({"policy_version": -1}, None), ({"policy_version": None}, None),
])  # fmt: skip
# docs: troubleshooting.md Nothing says which weights sampled a group
def test_versions(more, want):
    assert read_group(raw(**more), ReadOptions()).versions == want
