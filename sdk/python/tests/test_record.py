"""What a trainer computed for a batch's tokens reaches the trajectory API, laid out as its groups are."""

import math

import numpy as np
import pytest
import torch
from test_bridge import attach, opened

from recipe_sdk.batch import GroupBatch
from recipe_sdk.groups import ReadOptions, read_group
from recipe_sdk.record import groups
from recipe_sdk.testing import floats, make_group


def taken(raws, places, **options):
    read = [read_group(raw, ReadOptions(**options)) for raw in raws]
    return GroupBatch(0, 1, read, raws, lease="L", places=places)


def test_values_are_aligned_with_the_masked_tokens():
    first, second = make_group(1), make_group(2)
    cut = {**second, "masks": [list(m) for m in second["masks"]]}
    cut["masks"][0] = [*cut["masks"][0][:-1], -100]
    cut["masks"][1:] = [np.array(m, np.int32) for m in cut["masks"][1:]]  # as an Arrow stream brings them
    batch = taken([first, cut], [0, 3])
    counts = [len(c.positions) for g in batch.groups for c in g.completions]
    x = torch.arange(sum(counts)).float()
    out = groups(batch, {"advantages": x, "logprobs": -x})
    assert [g["index"] for g in out] == [0, 3]
    assert [v for g in out for v in floats(g["advantages"])] == x.tolist()
    assert [v for g in out for v in floats(g["logprobs"])] == (-x).tolist()
    assert len(floats(out[1]["advantages"])) == sum(m != -100 for row in cut["masks"] for m in row)
    with pytest.raises(ValueError, match=r"logprobs has the shape \[3\], expected"):
        groups(batch, {"logprobs": torch.zeros(3)})


def test_a_sequence_outside_the_loss_has_no_values():
    raw = make_group(3)
    raw["tokens"][1][-1] = raw["masks"][1][-1] = 2  # the only one that ends
    batch = taken([raw], [0], mask_truncated=True, eos=frozenset([2]))
    kept = [len(c.positions) for c in batch.groups[0].completions]
    assert kept[0] == 0 and kept[1] > 0
    (out,) = groups(batch, {"advantages": torch.ones(sum(kept))})
    marked = [sum(m != -100 for m in row) for row in raw["masks"]]
    values = floats(out["advantages"])
    assert len(values) == sum(marked)
    of_second = values[marked[0] : marked[0] + marked[1]]
    assert of_second == [1.0] * marked[1] and sum(map(math.isnan, values)) == sum(marked) - marked[1]


def test_a_sequence_that_is_not_read_has_no_values():
    raw = make_group(4)
    raw["overrides"] = [{"rollout": 0}, {"rollout": 0}, {}, {}]
    raw["scores"][1] = raw["scores"][0]
    batch = taken([raw], [0])
    read = [c.sequence for c in batch.groups[0].completions]
    (left_out,) = {0, 1, 2, 3} - set(read)
    (out,) = groups(batch, {"advantages": torch.ones(sum(len(c.positions) for c in batch.groups[0].completions))})
    marked = [sum(m != -100 for m in row) for row in raw["masks"]]
    values = floats(out["advantages"])
    of = [values[sum(marked[:i]) : sum(marked[: i + 1])] for i in range(4)]
    assert [all(map(math.isnan, x)) for x in of] == [i == left_out for i in range(4)]


def test_a_bridge_reports_what_stepped_was_given(tmp_path, api):
    refused = make_group(50)
    refused["masks"] = refused["masks"][:2]
    server = api(batch=lambda k: [refused, make_group(100 * k)])
    bridge = opened(tmp_path, server.url)
    attach(bridge)
    sent = []
    for batch in bridge.batches():
        sent.append(torch.rand(batch.trained_total, dtype=torch.float64))
        bridge.stepped({}, logprobs=-sent[-1])
        bridge._recorder.close()  # a report that is still under way would let the next one go
    assert bridge.close() == 0 and sorted(server.trained) == [0, 1]
    for number, (group,) in server.trained.items():
        assert group["index"] == 1 and "advantages" not in group
        assert group["logprobs"] == pytest.approx((-sent[number]).tolist())
    bodies = [body for _, path, body in server.requests if path.endswith("/trained")]
    assert [(b["step"], b["version"]) for b in bodies] == [(1, 0), (2, 0)]


@pytest.mark.parametrize("answer", [(404, {"detail": "Not Found"}), (200, {"status": "success", "recorded": 0})])
def test_a_server_that_records_nothing_is_asked_once(tmp_path, api, answer):
    server = api(fault=lambda _, path, __: answer if path.endswith("/trained") else None)
    bridge = opened(tmp_path, server.url)
    attach(bridge)
    for batch in bridge.batches():
        bridge.stepped({}, advantages=batch.advantages[batch.trained])
        bridge._recorder.close()
    assert bridge.close() == 0
    assert sum(path.endswith("/trained") for _, path, _ in server.requests) == 1
