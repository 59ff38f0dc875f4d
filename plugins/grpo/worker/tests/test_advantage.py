"""Estimators against references written per group in plain Python, and every rule for advantages that environments
send (specification section 8), one test a rule."""

import math
import statistics

import numpy as np
import pytest
import torch
from recipe_sdk.groups import GroupRejected, ReadOptions, read_advantage, read_group

from worker import advantage as adv
from worker import batch as batches
from worker.environment_advantages import MissingAdvantageError, Normalizer, Rules
from worker.environment_advantages import resolve as resolve_sent

SCORES = [[1.0, 0.0, 0.0, 0.5], [2.0], [0.3, 0.3, 0.3], [-1.0, 1.0]]
COUNTS = [[3, 5, 2, 4], [6], [2, 2, 3], [1, 7]]


def groups():
    score = torch.tensor([s for g in SCORES for s in g], dtype=torch.float64)
    group = torch.tensor([k for k, g in enumerate(SCORES) for _ in g])
    length = torch.tensor([c for g in COUNTS for c in g], dtype=torch.float64)
    return adv.Inputs(score, group, len(SCORES), length, seq=torch.arange(0))


def options(**constants):
    return adv.Options(**constants)


def tokens(reward, n, group=None, n_groups=1, **more):
    """Inputs of an estimator that looks at token rewards."""
    score = torch.zeros(n, dtype=torch.float64)
    group = torch.zeros(n, dtype=torch.long) if group is None else group
    return adv.Inputs(score, group, n_groups, torch.ones(n), seq=SEQ, reward=reward, **more)


def per_group(f):
    return [x for s, c in zip(SCORES, COUNTS, strict=True) for x in f(s, c)]


def close(got, want):
    assert got.tolist() == pytest.approx(want, abs=1e-9)


def mean(x):
    return sum(x) / len(x) if len(x) > 1 else 0.0


def std(x):
    return statistics.stdev(x) if len(x) > 1 else 1.0


def test_grpo_is_verls():
    close(adv.grpo(groups(), options()), per_group(lambda s, c: [(x - mean(s)) / (std(s) + 1e-6) for x in s]))
    close(adv.grpo(groups(), options(std="none")), per_group(lambda s, c: [x - mean(s) for x in s]))
    four = adv.Inputs(
        torch.tensor([1.0, -1, -1, -1]).double(), torch.zeros(4, dtype=torch.long), 1, torch.ones(4), seq=torch.arange(0)
    )  # fmt: skip
    close(adv.grpo(four, options(epsilon=0.0)), [1.5, -0.5, -0.5, -0.5])
    close(adv.grpo(four, options(std="population")), [math.sqrt(3), *[-1 / math.sqrt(3)] * 3])


def test_grpo_batch_deviation_is_trls():
    everything = [x for s in SCORES for x in s]
    sigma = statistics.stdev(everything)
    want = per_group(lambda s, c: [(x - mean(s)) / (sigma + 1e-4) for x in s])
    close(adv.grpo(groups(), options(std="batch", epsilon=1e-4)), want)


def test_passk():
    def reference(s, c):
        top = sorted(s, reverse=True)
        lead = (top[0] - top[1]) / (std(s) + 1e-6) if len(s) > 1 else 0
        return [lead if i == s.index(top[0]) else 0.0 for i in range(len(s))]

    close(adv.grpo_passk(groups(), options()), per_group(reference))


def test_rloo():
    def reference(s, c):
        if len(s) == 1:
            return s
        return [x - (sum(s) - x) / (len(s) - 1) for x in s]

    close(adv.rloo(groups(), options()), per_group(reference))


def test_opo():
    def reference(s, c):
        base = sum(a * b for a, b in zip(s, c, strict=True)) / sum(c) if len(s) > 1 else 0
        return [x - base for x in s]

    close(adv.opo(groups(), options()), per_group(reference))


def test_gpg():
    everything = [x for s in SCORES for x in s]
    alpha = len(everything) / sum(x != 0 for x in everything)
    close(adv.gpg(groups(), options()), per_group(lambda s, c: [alpha * (x - mean(s)) for x in s]))


def test_efficiency_shaping():
    def reference(s, c):
        best = max(s)
        if best <= 0:
            return s
        costs = [k for x, k in zip(s, c, strict=True) if x == best]
        average = sum(costs) / len(costs)
        return [x * (1 + max(0, 1 - k / average)) if x == best else x for x, k in zip(s, c, strict=True)]

    close(adv.efficiency_shaped(groups()), per_group(reference))


def test_gdpo():
    g = groups()
    objectives = torch.stack([g.score, torch.arange(10).double() % 3], 1)
    objectives[1, 1] = math.nan
    total = [0.0] * 10
    for k, weight in enumerate((1.0, 0.5)):
        start = 0
        for s in SCORES:
            column = [float(objectives[start + i, k]) for i in range(len(s))]
            known = [x for x in column if not math.isnan(x)]
            mu = sum(known) / len(known) if len(s) > 1 else 0.0
            sigma = statistics.stdev(known) if len(known) > 1 else 1.0 if len(s) == 1 else 0.0
            for i, x in enumerate(column):
                total[start + i] += 0.0 if math.isnan(x) else weight * (x - mu) / (sigma + 1e-4)
            start += len(s)
    mu, sigma = sum(total) / 10, statistics.stdev(total)
    g.objectives, g.weights = objectives, torch.tensor([1.0, 0.5])
    close(adv.gdpo(g, options(epsilon=1e-4)), [(x - mu) / (sigma + 1e-4) for x in total])


SEQ = torch.tensor([0, 0, 0, 1, 2, 2, 2, 2])
REWARD = torch.tensor([0.0, 0.1, 1.0, 2.0, 0.0, -0.2, 0.0, 1.0], dtype=torch.float64)


def whitened(x):
    m, s = sum(x) / len(x), statistics.variance(x)
    return [(v - m) / math.sqrt(s + 1e-8) for v in x]


@pytest.mark.parametrize("gamma", [1.0, 0.9])
def test_reinforce_plus_plus(gamma):
    returns = []
    for k in range(3):
        r = [float(x) for x, s in zip(REWARD, SEQ, strict=True) if s == k]
        returns += [sum(gamma**j * r[i + j] for j in range(len(r) - i)) for i in range(len(r))]
    close(adv.reinforce_plus_plus(tokens(REWARD, 3), options(gamma=gamma)), whitened(returns))


@pytest.mark.parametrize("gamma,lam", [(1.0, 1.0), (0.9, 0.8)])
def test_gae(gamma, lam):
    value = torch.linspace(-1, 1, 8, dtype=torch.float64)
    out = []
    for k in range(3):
        idx = [i for i in range(8) if SEQ[i] == k]
        r, v = [float(REWARD[i]) for i in idx], [float(value[i]) for i in idx] + [0.0]
        delta = [r[i] + gamma * v[i + 1] - v[i] for i in range(len(r))]
        out += [sum((gamma * lam) ** j * delta[i + j] for j in range(len(r) - i)) for i in range(len(r))]
    close(adv.gae(tokens(REWARD, 3, value=value), options(gamma=gamma, lam=lam)), whitened(out))


def test_remax():
    x = tokens(REWARD, 3, baseline=torch.tensor([0.5, 0.25, 1.0]))
    close(adv.remax(x, options()), [0.6, 0.6, 0.5, 1.75, -0.2, -0.2, 0.0, 0.0])


@pytest.mark.parametrize("zero_tail", [False, True])
def test_optimal_token_baseline(zero_tail):
    g = torch.Generator().manual_seed(0)
    lp = -torch.rand(8, generator=g, dtype=torch.float64) - 0.1
    squared = torch.rand(8, generator=g, dtype=torch.float64)
    group = torch.tensor([0, 1, 0])  # sequences 0 and 2 share a group, 1 is alone
    x = tokens(REWARD, 3, group, 2, lp=lp, squared=squared)
    got = adv.optimal_token_baseline(x, options(zero_tail=zero_tail))
    returns, W = {}, {}
    for k in range(3):
        idx = [i for i in range(8) if SEQ[i] == k]
        returns[k] = [sum(float(REWARD[j]) for j in idx[p:]) for p in range(len(idx))]
        w = [1 - 2 * math.exp(lp[i]) + float(squared[i]) for i in idx]
        W[k] = [sum(w[: p + 1]) for p in range(len(idx))]
    want = []
    for k in range(3):
        members = [m for m in range(3) if group[m] == group[k]]
        for p in range(len(returns[k])):
            running = [m for m in members if p < len(returns[m])]
            base = sum(returns[m][p] * W[m][p] for m in running) / (sum(W[m][p] for m in running) + 1e-8)
            if len(members) == 1 or (zero_tail and len(running) == 1):
                base = 0.0
            want.append(returns[k][p] - base)
    close(got, want)


def test_token_rewards_are_on_the_last_token_less_kl():
    penalty = torch.full((8,), 0.1, dtype=torch.float64)
    got = adv.token_rewards(torch.tensor([1.0, 2.0, 3.0]).double(), SEQ, 3, penalty)
    close(got, [-0.1, -0.1, 0.9, 1.9, -0.1, -0.1, -0.1, 2.9])


# ---- section 8: advantages from the environment ----


def group_of(advantages, masks=None, scores=(1.0, 0.0), overrides=None, **more):
    tokens = [[5, 6, 7, 8], [5, 6, 9]]
    masks = masks or [[-100, -100, 7, 8], [-100, -100, 9]]
    raw = {"tokens": tokens, "masks": masks, "scores": list(scores), "advantages": advantages, "env_id": 3, **more}
    if overrides:
        raw["overrides"] = overrides
    return raw


def resolve(raws, o=Rules(), ingest=ReadOptions(), normalizer=None):  # noqa: B008
    b = batches.build([read_group(r, ingest) for r in raws])
    x = adv.Inputs(b.score, b.group, len(b.groups), b.length.double(), b.seq)
    computed = adv.grpo(x, options())[b.seq]
    names = [x.label() for x in b.groups]
    out = resolve_sent(
        computed, b.sent, b.has_sent, b.zeroed, b.seq, b.n, b.group, names, o, normalizer or Normalizer()
    )
    return out, computed, b


def test_rule_1_forms_and_alignment():
    trained = np.array([2, 4])
    assert read_advantage(None, 5, trained, "auto") is None
    assert read_advantage([], 5, trained, "auto") is None
    assert read_advantage([0.0, 0.1, 0.2, 0.3, 0.4], 5, trained, "auto").tolist() == [0.2, 0.4]
    assert read_advantage([2], 5, trained, "auto").tolist() == [2.0, 2.0]
    assert read_advantage(3.5, 5, trained, "auto").tolist() == [3.5, 3.5]
    assert read_advantage([7.0, 8.0], 5, trained, "response").tolist() == [7.0, 8.0]
    for bad in ([1.0, 2.0], [1.0] * 4, [1.0] * 6):
        with pytest.raises(GroupRejected) as e:
            read_advantage(bad, 5, trained, "auto")
        assert e.value.reason == "advantage_length"
    with pytest.raises(GroupRejected):
        read_advantage([0.0] * 5, 5, trained, "response")
    for bad in ([0.0, 0.0, math.nan, 0.0, 0.0], [math.inf], math.nan, [None], [True], "x"):
        with pytest.raises(GroupRejected):
            read_advantage(bad, 5, trained, "auto")


def test_rule_1_a_list_of_another_length_is_refused():
    with pytest.raises(GroupRejected):
        read_group(group_of([[1.0]]), ReadOptions())


def test_rule_2_masked_values_are_ignored():
    raw = group_of([[9, 9, 9, 1.0], [5.0]], masks=[[-100, 6, -100, 8], [-100, -100, 9]])
    raw["advantages"][0] = [9.0, 0.5, 9.0, 1.0]
    out, _, b = resolve([raw])
    assert b.positions[0].tolist() == [1, 3]
    assert out.advantage.tolist() == [0.5, 1.0, 5.0]


def test_rule_3_others_use_all_scores_of_their_group():
    out, computed, _ = resolve([group_of([[0, 0, 4.0, 5.0], None])])
    assert out.advantage.tolist()[:2] == [4.0, 5.0]
    assert float(out.advantage[2]) == pytest.approx(float(computed[2])) and float(computed[2]) < 0
    assert out.metrics["adv/override_frac"] == pytest.approx(2 / 3)


def test_rule_3_group_scope_is_all_or_nothing():
    o = Rules(scope="group")
    out, computed, _ = resolve([group_of([[0, 0, 4.0, 5.0], None]), group_of([[1.0], [2.0]])], o)
    assert torch.equal(out.advantage[:3], computed[:3])
    assert out.advantage[3:].tolist() == [1.0, 1.0, 2.0]
    assert out.metrics["adv/overrides_incomplete"] == 1


def test_rule_3_an_untrained_sequence_lacks_nothing():
    """A truncated completion that is masked out does not change the group's advantages."""
    o = Rules(scope="group", fallback=False)
    masked = ReadOptions(mask_truncated=True, eos=frozenset({9}))
    out, _, _ = resolve([group_of([[1.0], [2.0]])], o, masked)
    assert out.advantage.tolist() == [2.0]


def test_rule_4_switches():
    out, computed, _ = resolve([group_of([[1.0], [2.0]])], Rules(use=False))
    assert torch.equal(out.advantage, computed) and out.metrics["adv/overrides_ignored"] == 2
    with pytest.raises(MissingAdvantageError, match=r"env_id 3, group of 2"):
        resolve([group_of([[1.0], None])], Rules(fallback=False))
    resolve([group_of([[1.0], [1.0]])], Rules(fallback=False))


def test_rule_5_equal_scores_with_overrides_train():
    out, computed, _ = resolve([group_of([[1.0], [-1.0]], scores=(0.5, 0.5))])
    assert computed.tolist() == [0, 0, 0]
    assert out.advantage.tolist() == [1.0, 1.0, -1.0]


def test_rule_6_batch_normalization_covers_overrides():
    raws = [group_of([[0, 0, 4.0, 5.0], None])]
    out, computed, _ = resolve(raws, Rules(normalization="batch"))
    s = statistics.stdev([4.0, 5.0])
    assert out.advantage.tolist() == pytest.approx([-0.5 / (s + 1e-8), 0.5 / (s + 1e-8), float(computed[2])])
    out, computed, _ = resolve(raws, Rules(normalization="batch", normalize_scope="all"))
    x = [4.0, 5.0, float(computed[2])]
    m, s = mean(x), statistics.stdev(x)
    assert out.advantage.tolist() == pytest.approx([(v - m) / (s + 1e-8) for v in x])


def test_rule_6_global_normalization_keeps_its_state():
    normalizer = Normalizer()
    o = Rules(normalization="global")
    first, _, _ = resolve([group_of([[0, 0, 4.0, 5.0], [9.0]])], o, normalizer=normalizer)
    x = [4.0, 5.0, 9.0]
    m = sum(x) / 3
    s = math.sqrt(sum(v * v for v in x) / 3 - m * m)
    assert first.advantage.tolist() == pytest.approx([(v - m) / (s + 1e-8) for v in x])
    copy = Normalizer(**normalizer.state())
    again, _, _ = resolve([group_of([[1.0], [2.0]])], o, normalizer=normalizer)
    resumed, _, _ = resolve([group_of([[1.0], [2.0]])], o, normalizer=copy)
    assert torch.equal(again.advantage, resumed.advantage)
    y = [1.0, 1.0, 2.0]
    weight = 1 - 0.99**2
    mu = (0.99 * 0.01 * m + 0.01 * mean(y)) / weight
    square = (0.99 * 0.01 * sum(v * v for v in x) / 3 + 0.01 * sum(v * v for v in y) / 3) / weight
    s = math.sqrt(square - mu * mu)
    assert again.advantage.tolist() == pytest.approx([(v - mu) / (s + 1e-8) for v in y])


def test_rule_7_clip_then_zero():
    o = Rules(clip=(-3.0, 3.0))
    raw = group_of([[0, 0, 40.0, -7.0], [2.0]], overrides=[{}, {"set_advantage_to_zero": True}])
    out, computed, _ = resolve([raw], o)
    assert out.advantage.tolist() == [3.0, -3.0, 0.0]
    assert out.metrics["adv/clipped_frac"] == pytest.approx(2 / 3) and out.metrics["adv/zeroed"] == 1
    assert float(computed[0]) > 0  # the zeroed sequence still counts in the group's statistics


def test_response_layout_scatters_in_order():
    raw = group_of([[0.5, 1.5], [2.5]])
    out, _, _ = resolve([raw], ingest=ReadOptions(advantage_layout="response"))
    assert out.advantage.tolist() == [0.5, 1.5, 2.5]
