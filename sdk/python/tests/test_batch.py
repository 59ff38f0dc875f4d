"""A batch's views: nothing is lost or counted twice, whatever its sequences are."""

import math
import random

import pytest
import torch

from recipe_sdk import Batch, GroupBatch
from recipe_sdk.advantages import group_relative
from recipe_sdk.groups import ReadOptions, read_group

SEEDS = range(25)


def draw(seed: int) -> tuple[Batch, list[dict]]:
    """Ragged groups with holes in their masks, sequences without a trained token, scores and log-probabilities that are
    missing, advantages of the environment."""
    r = random.Random(seed)
    raw = []
    for k in range(r.randint(1, 5)):
        lists = ("tokens", "masks", "scores", "inference_logprobs", "ref_logprobs", "advantages", "overrides")
        group = {name: [] for name in lists}
        group.update(env_id=r.randrange(2), policy_version=r.choice([None, 3, [2, 4]]))
        for _ in range(r.randint(1, 4)):
            n = r.randint(1, 9)
            tokens = [r.randrange(1, 90) for _ in range(n)]
            mask = [-100] + [t if r.random() < 0.6 else -100 for t in tokens[1:]]
            group["tokens"].append(tokens)
            group["masks"].append(mask)
            group["scores"].append(None if r.random() < 0.1 else r.choice([0.0, 1.0, -0.5]))
            group["inference_logprobs"].append([1.0 if m == -100 or k == 4 else -r.random() for m in mask])
            group["ref_logprobs"].append([-r.random() for _ in mask])
            group["advantages"].append(r.choice([None, [r.gauss(0, 1)], [r.gauss(0, 1) for _ in mask]]))
            group["overrides"].append({"set_advantage_to_zero": r.random() < 0.1, "temperature": r.choice([0.7, 1.0])})
        raw.append(group)
    groups = [read_group(g, ReadOptions()) for g in raw]
    return Batch.build(GroupBatch(7, 3, groups, raw)), raw


def sequences(b: Batch) -> list[tuple]:
    """The content of a batch for each sequence, in a form that can be compared."""
    out = []
    for i in range(len(b)):
        part = slice(int(b.offsets[i]), int(b.offsets[i + 1]))
        vectors = [b.tokens, b.trained, b.inference_logprobs, b.advantages]
        if b.ref_logprobs is not None:
            vectors.append(b.ref_logprobs)
        numbers = (
            b.group,
            b.env,
            b.versions,
            b.has_logprobs,
            b.advantages_sent,
            b.temperature,
            b.scores.nan_to_num(99.0),
        )
        out.append((*(tuple(v[part].tolist()) for v in vectors), *(str(x[i].tolist()) for x in numbers)))
    return out


@pytest.mark.parametrize("seed", SEEDS)
def test_every_token_is_where_it_belongs(seed):
    b, raw = draw(seed)
    flat = [(g, i) for g in raw for i in range(len(g["tokens"]))]
    assert len(b) == b.sequences_total == len(flat) and b.groups_total == len(raw) == int(b.group.max()) + 1
    assert int(b.trained.sum()) == b.trained_total
    sent = [bool(g["advantages"][i] or g["overrides"][i]["set_advantage_to_zero"]) for g, i in flat]
    assert b.advantages_sent.tolist() == sent
    for k, (g, i) in enumerate(flat):
        part = slice(int(b.offsets[k]), int(b.offsets[k + 1]))
        trained = [m != -100 for m in g["masks"][i]]
        assert b.tokens[part].tolist() == g["tokens"][i]
        assert b.trained[part].tolist() == trained
        lp = g["inference_logprobs"][i]
        want = [v if t and v != 1.0 else 0.0 for v, t in zip(lp, trained, strict=True)]
        assert torch.allclose(b.inference_logprobs[part], torch.tensor(want))
        assert bool(b.has_logprobs[k]) == all(v != 1.0 for v, t in zip(lp, trained, strict=True) if t)
        ref = [v if t else 0.0 for v, t in zip(g["ref_logprobs"][i], trained, strict=True)]
        assert torch.allclose(b.ref_logprobs[part], torch.tensor(ref))
        sent = g["advantages"][i]
        if g["overrides"][i]["set_advantage_to_zero"]:
            assert not b.advantages[part].any()
        elif sent:
            own = [a if t else 0.0 for a, t in zip(sent * (len(trained) // len(sent)), trained, strict=True)]
            assert torch.allclose(b.advantages[part], torch.tensor(own))
        assert math.isnan(b.scores[k]) if g["scores"][i] is None else float(b.scores[k]) == g["scores"][i]
        assert b.env_ids[int(b.env[k])] == str(g["env_id"])
        want = {None: [-1, -1], 3: [3, 3]}.get(g["policy_version"] if g["policy_version"] != [2, 4] else 0, [2, 4])
        assert b.versions[k].tolist() == want


def test_advantages_compare_within_groups():
    scores = torch.tensor([1.0, 3.0, math.nan, 5.0, 2.0, 2.0], dtype=torch.float64)
    got = group_relative(scores, torch.tensor([0, 0, 0, 1, 2, 2]), 3)
    assert got.tolist() == pytest.approx([-(0.5**0.5), 0.5**0.5, 0.0, 0.0, 0.0, 0.0], abs=1e-5)


@pytest.mark.parametrize("whole_groups", [False, True])
@pytest.mark.parametrize("seed", SEEDS)
def test_shares_are_a_partition(seed, whole_groups):
    b, _ = draw(seed)
    for world in (1, 2, 3):
        parts = [b.share(r, world, whole_groups=whole_groups) for r in range(world)]
        assert sorted(s for p in parts for s in sequences(p)) == sorted(sequences(b))
        for p in parts:
            assert (p.sequences_total, p.trained_total, p.groups_total, p.number) == (
                b.sequences_total, b.trained_total, b.groups_total, 7,
            )  # fmt: skip
        if whole_groups:
            seen = [set(p.group.tolist()) for p in parts]
            assert sum(len(s) for s in seen) == len(set().union(*seen))
        loads = [len(p.tokens) for p in parts]
        largest = max(int((b.group == g).long() @ b.lengths) for g in range(b.groups_total))
        assert max(loads) - min(loads) <= (largest if whole_groups else int(b.lengths.max()))
    with pytest.raises(ValueError, match="expected 0 to 1"):
        b.share(2, 2)


@pytest.mark.parametrize("seed", SEEDS)
def test_fill_adds_rows_and_changes_none(seed):
    b, _ = draw(seed)
    assert b.fill(len(b)) is b
    f = b.fill(len(b) + 3)
    assert sequences(f)[: len(b)] == sequences(b)
    assert f.lengths[len(b) :].tolist() == [2, 2, 2] and f.group[len(b) :].tolist() == [-1] * 3
    assert int(f.trained.sum()) == b.trained_total == f.trained_total and f.sequences_total == len(b)
    assert torch.isnan(f.scores[len(b) :]).all() and not f.advantages[len(b.tokens) :].any()
    with pytest.raises(ValueError, match="more than"):
        b.fill(len(b) - 1)


@pytest.mark.parametrize("seed", SEEDS)
def test_rectangles_hold_every_token_once(seed):
    b, _ = draw(seed)
    b = b.fill(len(b) + 1)
    p = b.padded(pad=-7)
    for i, s in enumerate(sequences(b)):
        prompt, completion = p["prompt_mask"][i].bool(), p["completion_mask"][i].bool()
        ids = p["prompt_ids"][i][prompt].tolist() + p["completion_ids"][i][completion].tolist()
        assert tuple(ids) == s[0]
        head = int(prompt.sum())
        for name, k in (("trained", 1), ("inference_logprobs", 2), ("advantages", 3), ("ref_logprobs", 4)):
            if name in p:
                assert tuple(p[name][i][completion].tolist()) == tuple(s[k][head:]) and not any(s[k][:head])
                assert not p[name][i][~completion].any()
        assert (p["prompt_ids"][i][~prompt] == -7).all() and (p["completion_ids"][i][~completion] == -7).all()
        assert prompt.tolist() == sorted(prompt.tolist()), "prompts are padded on the left"
        assert completion.tolist() == sorted(completion.tolist(), reverse=True), "completions on the right"
        if any(s[1]):
            assert p["trained"][i][0] == 1, "a completion starts at the first trained token"
    assert int(p["trained"].sum()) == b.trained_total


@pytest.mark.parametrize("seed", SEEDS)
def test_nested_tensors_hold_every_token_once(seed):
    b, _ = draw(seed)
    n = {k: v.unbind() for k, v in b.nested().items()}
    for i, s in enumerate(sequences(b)):
        assert tuple(n["input_ids"][i].tolist()) == s[0]
        assert n["position_ids"][i].tolist() == list(range(len(s[0])))
        assert n["prompts"][i].tolist() + n["responses"][i].tolist() == list(s[0])
        head = len(n["prompts"][i])
        for name, k in (("response_mask", 1), ("old_log_probs", 2), ("advantages", 3), ("ref_log_prob", 4)):
            if name in n:
                assert n[name][i].tolist() == [float(x) for x in s[k][head:]]


@pytest.mark.parametrize("limit", [1, 8, 1000])
@pytest.mark.parametrize("seed", SEEDS)
def test_rows_hold_every_token_once_within_the_limit(seed, limit):
    b, _ = draw(seed)
    rows = b.rows(limit)
    assert sorted(i for row in rows for i in row.sequences) == list(range(len(b)))
    assert sorted(t for row in rows for t in row.index.tolist()) == list(range(len(b.tokens)))
    for row in rows:
        assert len(row.sequences) == 1 or row.tokens.shape[1] <= limit
        assert torch.equal(row.tokens[0], b.tokens[row.index])
        assert row.boundaries.diff().tolist() == b.lengths[row.sequences].tolist()
        want = [t for i in row.sequences for t in range(int(b.lengths[i]))]
        assert row.position_ids[0].tolist() == want and row.longest == max(b.lengths[row.sequences].tolist())


def test_a_share_of_nothing_has_every_view():
    b, _ = draw(1)
    empty = b.take([])
    assert len(empty) == 0 and empty.rows(8) == [] and empty.padded(0)["prompt_ids"].shape == (0, 0)
    assert len(empty.fill(2)) == 2 and empty.fill(2).padded(0)["trained"].sum() == 0
    assert empty.nested()["input_ids"].size(0) == 0


def test_estimators_fill_only_missing_advantages() -> None:
    mask = [-100, 5, 6]
    raw = {"tokens": [[4, 5, 6]] * 3, "masks": [mask] * 3, "scores": [0.0, 1.0, 5.0], "advantages": [None, None, [7.0]]}
    taken = GroupBatch(0, 1, [read_group(raw, ReadOptions())], [raw])
    batch = Batch.build(taken, lambda scores, group, groups: scores * 10 + group + groups)
    assert batch.advantages.tolist() == [0.0, 1.0, 1.0, 0.0, 11.0, 11.0, 0.0, 7.0, 7.0]
