"""ref_logprobs of posted groups are the reference of the KL term."""

import math

import pytest
from recipe_sdk.testing import VOCABULARY, make_group

UNIFORM = -math.log(VOCABULARY)  # about the value that an untrained model gives every token


def with_reference(seed: int, value: float) -> dict:
    group = make_group(seed)
    group["ref_logprobs"] = [[1.0 if m == -100 else value for m in mask] for mask in group["masks"]]
    return group


def test_kl_measures_against_the_datas_reference(make, api, tmp_path):
    measured = {}
    for distance in (0.0, -1.0, 1.0):
        server = api(batch=lambda k, d=distance: [with_reference(100 * k + j, UNIFORM + d) for j in range(2)])
        w = make(
            server.url, where=tmp_path / str(distance), kl={"coefficient": 0.1}, reference={"source": "data"}, steps=1
        )()
        assert w.reason == "completed"
        measured[distance] = w.metrics()[0]["kl/reference"]
    for distance, kl in measured.items():
        assert kl == pytest.approx(math.exp(distance) - distance - 1, abs=0.12)  # k3, but for what initialization adds
    assert measured[0.0] < 0.1 < measured[-1.0] < measured[1.0]


def test_groups_without_their_reference_are_refused(make, api):
    server = api(batch=lambda k: [make_group(2 * k), with_reference(2 * k + 1, UNIFORM)])
    w = make(server.url, kl={"coefficient": 0.1}, reference={"source": "data"}, steps=1)()
    assert [m["rejected_groups/missing_ref_logprobs"] for m in w.metrics()] == [1]
