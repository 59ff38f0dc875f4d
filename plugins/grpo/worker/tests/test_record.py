"""What a step computed for its tokens is reported: the log-probabilities before it, the advantages in its loss."""

import pytest
from recipe_sdk.testing import scores_of


@pytest.mark.parametrize("change", [
    pytest.param({}, id="one pass"),
    pytest.param({"correction": {"recompute": "always"}}, id="a pass before"),
    pytest.param({"data": {"epochs": 2}}, id="two epochs"),
])  # fmt: skip
def test_a_step_reports_its_tokens(make, api, tiny, change):
    server = api()
    w = make(server.url, steps=1, **change)()
    assert w.reason == "completed"
    groups = server.trained[0]
    assert [g["index"] for g in groups] == [0, 1]
    for found, sent in zip(groups, server.batch(0), strict=True):
        assert found["logprobs"] == pytest.approx(scores_of(tiny, sent), abs=1e-4)
        assert len(found["advantages"]) == len(found["logprobs"])
        scores = sent["scores"]
        if len(set(scores)) > 1:
            signs, at = [], 0
            for mask in sent["masks"]:
                trained = sum(m != -100 for m in mask)
                signs.append(found["advantages"][at] > 0)
                at += trained
            assert signs == [s > sum(scores) / len(scores) for s in scores]


def test_tokens_are_reported_before_their_step(make, api):
    server = api()
    make(server.url, steps=1, data={"mini_batch_size": 4}, correction={"old_policy": "rollout"})()
    for found in server.trained[0]:
        assert all(lp < 0 for lp in found["logprobs"]), "none is missing"
