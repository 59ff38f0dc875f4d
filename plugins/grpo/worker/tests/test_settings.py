"""Configuration, estimators through the configuration, and error messages."""

import json
import pickle
from pathlib import Path

import pytest
import torch
from recipe_sdk import errors, fields
from recipe_sdk.fields import ConfigError
from recipe_sdk.groups import ReadOptions, read_group
from recipe_sdk.testing import make_group

from worker import advantage, config, estimate, loss, registry
from worker import batch as batches
from worker.environment_advantages import Normalizer
from worker.objective import options

BASE = {"model": {"path": "m"}, "data": {"url": "u"}}


def settings(**change):
    return config.from_dict(fields.merge(BASE, change))


def test_defaults_are_verls_grpo():
    c = settings()
    o = options(c)
    assert (o.loss.name, o.constants.clip_low, o.constants.clip_high, o.constants.dual_clip) == ("ppo", 0.2, 0.2, 3.0)
    assert (o.aggregation, o.kl_coefficient, o.kl_estimator) == ("token-mean", 0.001, "k3")
    assert (c.optimizer.grad_clip, c.optimizer.weight_decay, c.data.epochs) == (1.0, 0.01, 1)
    assert c.advantages.std == "group" and c.entropy.coefficient == 0.0


def test_every_mistake_is_reported_at_once():
    with pytest.raises(ConfigError) as e:
        config.from_dict({
            "model": {"pth": "x", "row_tokens": 0}, "data": {"url": 3}, "loss": {"name": "pppo"}, "stepz": 1,
            "correction": {"rejections": [{"rule": "token_k1"}]}, "advantages": {"clip": [1]},
        })  # fmt: skip
    text = str(e.value)
    for part in ("stepz: unknown setting; did you mean steps?", "model.pth: unknown setting; did you mean path?",
                 "model.path: required", "model.row_tokens: expected at least 1, got 0", "did you mean ppo?",
                 "data.url: expected a string, got 3", "high: required", "advantages.clip: expected a list of 2"):  # fmt: skip
        assert part in text


@pytest.mark.parametrize("change,part", [
    ({"advantages": {"clip": [1.0, 2.0]}}, "low <= 0 <= high"),
    ({"correction": {"old_policy": "rollout", "importance": "token"}}, "already holds the weight"),
    ({"loss": {"name": "dppo"}, "correction": {"importance": "token"}}, "would count twice"),
    ({"loss": {"name": "decoupled_ppo"}, "correction": {"importance": "none"}}, "decoupled_ppo is that weight"),
    ({"loss": {"name": "decoupled_ppo"}, "correction": {"old_policy": "rollout"}}, "beside the sampler's"),
    ({"loss": {"name": "gspo", "aggregation": "token-mean"}}, "gspo fixes how its tokens are averaged"),
    ({"loss": {"name": "sapo", "aggregation": "dapo"}}, "sapo fixes how its tokens are averaged"),
    ({"loss": {"name": "geo_mean", "aggregation": "token-mean"}}, "geo_mean fixes how its tokens are averaged"),
    ({"loss": {"name": "awsft", "aggregation": "grpo"}}, "awsft fixes how its tokens are averaged"),
    ({"advantages": {"estimator": "rf++", "single": "zero"}}, r"rf\+\+ does not compare within groups"),
    ({"advantages": {"estimator": "gae", "single": "score"}}, "gae does not compare within groups"),
    ({"advantages": {"estimator": "remax", "single": "score"}}, "remax does not compare within groups"),
    ({"advantages": {"estimator": "grpo_passk", "single": "score"}}, "A group of one has none"),
    ({"reference": {"source": "lora_off"}}, "lora_off needs adapters"),
    ({"reference": {"source": "none"}}, "a KL term needs a reference"),
    ({"loss": {"dual_clip": 0.5}}, "above 1"),
    ({"control": "0.0.0.0:80"}, "open to the network"),
    ({"advantages": {"estimator": "gdpo"}}, "gdpo needs one weight for each objective"),
    ({"data": {"mini_batch_size": 100}}, "A batch of 64 is split"),
    ({"advantages": {"estimator": "gdpo", "objective_weights": [1.0], "length_penalty": True}}, "length one of the objectives"),
    ({"kl": {"adaptive_target": 0.1}}, "Both must be more than 0"),
    ({"model": {"path": "m", "dtype": "float16"}}, "too small for float16"),
    ({"model": {"path": "m", "compute_dtype": "float16"}}, "too small for float16"),
])  # fmt: skip
def test_contradictions(change, part):
    with pytest.raises(ConfigError, match=part):
        settings(**change)


@pytest.mark.parametrize("name,want", [
    ("vanilla", ("ppo", "token", "token-mean")), ("dapo", ("ppo", "token", "token-mean")),
    ("dr_grpo", ("ppo", "token", "batch-sum-norm")), ("luspo", ("ppo", "sequence", "batch-mean-token-sum")),
    ("geo_mean", ("gmpo", "token", "batch-mean-token-mean")), ("gspo", ("gspo", "sequence_token", "seq-mean-token-mean")),
    ("ref_kl", ("distill", "token", "token-mean")),
])  # fmt: skip
def test_names_of_other_projects(name, want):
    extra = {"reference": {"source": "copy", "path": "teacher"}} if name == "ref_kl" else {}
    assert config.resolved(settings(loss={"name": name}, **extra)) == want


def test_schema_describes_every_setting():
    described = fields.describe(config.Config)
    assert len({d["name"] for d in described}) == len(described) > 120
    assert all(len(d["description"]) > 3 for d in described)
    assert {d["name"] for d in described if d.get("required")} == {"model.path", "data.url"}
    assert {"optimizer.learning_rate", "steps", "loss.clip_high"} <= {d["name"] for d in described if d.get("live")}
    rules = next(d for d in described if d["name"] == "correction.rejections")
    assert [d["name"] for d in rules["items"]] == ["rule", "high", "low"]


def test_a_recipe_says_none_with_a_number():
    c = settings(loss={"dual_clip": 0}, correction={"importance_high": 0, "mismatch_limit": 0})
    assert (c.loss.dual_clip, c.correction.importance_high, c.correction.mismatch_limit) == (None, None, None)
    assert config.update(c, {"loss": {"dual_clip": 4}}).loss.dual_clip == 4


def test_errors_travel_between_ranks():
    e = errors.AtroposAPIError("timeout", "no answer", ["a", "b", "c"])
    again = pickle.loads(pickle.dumps(e))
    assert type(again) is errors.AtroposAPIError and again.kind == "timeout" and str(again) == str(e)
    m = pickle.loads(pickle.dumps(errors.MismatchError("x", ["y"])))
    assert type(m) is errors.MismatchError and m.code == "mismatch"


def test_out_of_memory_says_what_to_lower():
    gib = 1 << 30
    e = errors.out_of_memory("backward", 16384, 3000, used=80 * gib, limit=80 * gib, resident=40 * gib)
    assert e.code == "out_of_memory" and "backward" in e.message
    assert "row_tokens from 16384 to 8192" in e.checks[0]
    assert "longest sequence has 3000 tokens" in e.checks[1]
    assert "gradient_checkpointing" in e.checks[2] and "gpu_memory_utilization" in e.checks[3]
    assert not any("optimizer.offload" in check for check in e.checks)
    full = errors.out_of_memory("optimizer", 8192, 3000, 80 * gib, 80 * gib, 79 * gib, movable=57 * gib)
    assert any("optimizer.offload = true: 57.0 GiB" in check for check in full.checks)
    worse = errors.out_of_memory("forward", 16384, 9000, used=120 * gib, limit=80 * gib, resident=60 * gib)
    assert "to 4864" in worse.checks[0] and "below 4864" in worse.checks[1]


# ---- estimators through the configuration ----


def batch(**more):
    raws = [{**make_group(k), **more} for k in range(3)]
    for r in raws:
        r["overrides"] = [{"rewards": {"b": s, "a": 1.0 - s}} for s in r["scores"]]
        r["group_overrides"] = {"reward_baseline": 0.25}
    return batches.build([read_group(r, ReadOptions()) for r in raws])


def run(b, name, beta=0.0, ref=None, lp=None, **change):
    c = settings(advantages={"estimator": name, **change})
    lp = torch.linspace(-2, -1, b.size, dtype=torch.float64) if lp is None else lp
    old = {"lp": lp, "squared": torch.full((b.size,), 0.3, dtype=torch.float64)}
    return estimate.advantages(c, b, Normalizer(), old, lp - 0.5 if ref is None else ref, beta)


@pytest.mark.parametrize("name", advantage.ESTIMATORS.names)
def test_every_estimator_reaches_the_loss(name):
    b = batch()
    adv, facts = run(b, name, objective_weights=[1.0, 0.5])
    assert adv.shape == (b.size,) and bool(torch.isfinite(adv).all()) and float(adv.abs().sum()) > 0
    assert facts["adv/override_frac"] == 0 and facts["adv/fallback_groups"] == 3
    if name in ("grpo", "rloo", "opo", "gpg"):
        x = advantage.Inputs(b.score, b.group, 3, b.length.double(), b.seq)
        assert torch.equal(adv, getattr(advantage, name)(x, advantage.Options())[b.seq])


def test_dr_grpo_divides_by_no_deviation():
    assert torch.equal(run(batch(), "dr_grpo")[0], run(batch(), "grpo", std="none")[0])


@pytest.mark.parametrize("name", [n for n in advantage.ESTIMATORS.specs if n != "gdpo"])
@pytest.mark.parametrize("beta", [0.0, 1e-9])
def test_short_winners_are_favored_by_any_estimator(name, beta):
    """A KL in the reward makes every score different; the best of a group are still chosen by the environment's scores."""
    raw = {"tokens": [[9, 9, 9, 9], [9, 9], [9, 9, 9]], "masks": [[-100, 9, 9, 9], [-100, 9], [-100, 9, 9]],
           "scores": [1.0, 1.0, 0.0], "group_overrides": {"reward_baseline": 0.25}}  # fmt: skip
    b = batches.build([read_group(raw, ReadOptions())])
    # the short answer is worth 1.5: its single token against the mean of 2 tokens of the best
    want, _ = run(batches.build([read_group(raw | {"scores": [1.0, 1.5, 0.0]}, ReadOptions())]), name, beta)
    assert run(b, name, beta, length_penalty=True)[0].tolist() == pytest.approx(want.tolist(), abs=1e-6)
    assert run(b, name, beta)[0].tolist() != pytest.approx(want.tolist(), abs=1e-3)


def test_kl_in_the_reward_lowers_no_override():
    b = batch()
    plain, _ = run(b, "grpo", std="none")
    shaped, facts = run(b, "grpo", beta=0.1, std="none")
    assert facts["kl/reward"] == pytest.approx(0.5) and facts["kl/reward_coefficient"] == 0.1
    penalty = 0.1 * 0.5 * b.length.double()  # k1 of 0.5 a token, summed over the sequence
    x = advantage.Inputs(b.score - penalty, b.group, 3, b.length.double(), b.seq)
    assert torch.allclose(shaped, advantage.grpo(x, advantage.Options(std="none"))[b.seq]) and not torch.equal(
        plain, shaped
    )
    sent = batch(advantages=[[0.7]] * 4)
    with_kl, facts = run(sent, "grpo", beta=0.1)
    assert facts["adv/override_frac"] == 1 and bool((with_kl == 0.7).all())


def test_estimators_name_what_the_data_lacks():
    b = batches.build([read_group(make_group(1), ReadOptions())])
    with pytest.raises(errors.DataError, match=r"reward_baseline.*env_id 0"):
        run(b, "remax")
    with pytest.raises(errors.DataError, match=r"2 numbers.*env_id 0"):
        run(b, "gdpo", objective_weights=[1.0, 1.0])


# ---- what corrects for samples that are older than the weights ----


@pytest.mark.parametrize("loss,correction,want", [
    ("ppo", {}, ("token", True)), ("gspo", {}, ("token", True)), ("reinforce", {}, ("token", True)),
    ("vespo", {}, ("token", True)), ("decoupled_ppo", {}, ("token", False)),
    ("dppo", {}, ("none", False)), ("ipo", {}, ("none", False)), ("atropos", {}, ("none", False)),
    ("sft", {}, ("none", False)), ("weighted_sft", {}, ("none", False)),
    ("ppo", {"old_policy": "rollout"}, ("none", False)), ("reinforce", {"old_policy": "rollout"}, ("token", True)),
    ("ppo", {"importance": "none"}, ("none", False)), ("ppo", {"importance": "sequence"}, ("sequence", False)),
])  # fmt: skip
def test_stale_samples_are_corrected_by_default(loss, correction, want):
    c = settings(loss={"name": loss}, correction=correction)
    assert config.importance_of(c) == want
    o = options(c)
    assert (o.importance, o.importance_lenient) == want and o.importance_high == 2.0
    assert not o.needs_current  # the default costs no forward pass


@pytest.mark.parametrize("data,given,want", [
    ({}, None, 2048), ({"max_length": 512, "max_prompt_length": 128}, None, 384),
    ({"max_length": 512, "max_prompt_length": 128, "max_response_length": 256}, None, 256),
    ({"max_response_length": 256}, 1000.0, 1000),
])  # fmt: skip
def test_dr_grpo_divides_by_a_constant(data, given, want):
    c = settings(loss={"name": "dr_grpo", "length_norm": given}, data=data)
    assert options(c).aggregation == "batch-sum-norm" and options(c).length_norm == want


@pytest.mark.parametrize("name,gap", [("dppo", 0.15), ("default", 0.2), ("ipo", 0.1), ("distill", 0.2)])
def test_trust_regions_are_those_of_the_papers(name, gap):
    extra = {"reference": {"source": "copy", "path": "teacher"}} if name == "distill" else {}
    o = options(settings(loss={"name": name}, **extra)).constants
    assert (o.probability_gap, o.log_ratio_penalty, o.advantage_temperature) == (gap, 1e-3, 1.0)
    assert options(settings(loss={"name": name, "probability_gap": 0.3}, **extra)).constants.probability_gap == 0.3


# Also read by the plugin's tests: a plan describes loss and correction as the worker does them.
CASES = json.loads((Path(__file__).parents[2] / "testdata" / "learning.json").read_text())


@pytest.mark.parametrize("case", CASES, ids=lambda c: json.dumps(c["settings"]))
def test_the_worker_does_what_the_plan_says(case):
    given = dict(case["settings"])
    if given.get("loss", {}).get("name") in ("distill", "ref_kl"):
        given["reference"] = {"source": "copy", "path": "teacher"}
    if "refused" in case:
        with pytest.raises(ConfigError, match=rf"^  {case['refused']}:|\n  {case['refused']}:"):
            settings(**given)
        return
    c = settings(**given)
    name, _, mode = config.resolved(c)
    assert (name, mode, config.importance_of(c)[0]) == (case["loss"], case["aggregation"], case["importance"])
    if case["length_norm"]:
        assert config.length_norm(c) == case["length_norm"]


# ---- what a plan warns of ----


class Recorder:
    """Options that remember what was read of them."""

    def __init__(self, of):
        self.of, self.read = of, set()

    def __getattr__(self, name):
        self.read.add(name)
        return getattr(self.of, name)


@pytest.mark.parametrize("name", loss.LOSSES.specs)
def test_a_loss_says_which_options_it_reads(name):
    """A plan warns of others; one that is not named would be called useless."""
    spec, n = loss.LOSSES.specs[name], 8
    g = torch.Generator().manual_seed(0)
    lp, old, adv = (torch.randn(n, generator=g, dtype=torch.float64) for _ in range(3))
    picked = torch.zeros(n, dtype=torch.bool)
    t = registry.Terms(lp - 1, old - 1, adv, torch.arange(n) // 4, 2, old - 1, old - 2, picked)
    seen = Recorder(loss.LossOptions(ratio_level=spec.ratio or "token"))
    spec.function(t, seen)
    if spec.select:
        spec.select(adv, lp, old, seen, 0)
    assert seen.read - {"advantage_temperature"} == set(spec.uses)


@pytest.mark.parametrize("name", advantage.ESTIMATORS.specs)
def test_an_estimator_says_which_options_it_reads(name):
    spec, n = advantage.ESTIMATORS.specs[name], 4
    score = torch.tensor([1.0, 0.0, 0.5, 0.0], dtype=torch.float64)
    x = advantage.Inputs(
        score, torch.zeros(n, dtype=torch.long), 1, torch.ones(n).double(), torch.arange(n), None, score, score - 2,
        score * 0 + 0.3, score, score[:, None], torch.ones(1).double(), score,
    )  # fmt: skip
    seen = Recorder(advantage.Options())
    spec.function(x, seen)
    assert seen.read == set(spec.uses)
