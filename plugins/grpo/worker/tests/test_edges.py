"""Numbers at the edge of what a batch can hold: what cannot be learned from is left out and told, nothing becomes NaN."""

import pytest
import torch
from recipe_sdk import errors
from recipe_sdk.groups import ReadOptions, read_group
from recipe_sdk.testing import make_group

from worker import advantage, loss
from worker import batch as batches
from worker.metrics import Clock
from worker.registry import Terms, estimator, evaluate

from .test_model import stepper

CPU = torch.device("cpu")


def groups(n=4, **more):
    return [{**make_group(k), **more} for k in range(n)]


def build(raw):
    return batches.build([read_group(g, ReadOptions()) for g in raw])


def train(tmp_path, tiny, raw, **change):
    return stepper(tmp_path, tiny, **change).train(build(raw), 0, Clock(CPU))


@pytest.mark.parametrize("name", loss.LOSSES.specs)
@pytest.mark.parametrize("far", [-120.0, 0.0])
def test_no_ratio_is_infinite(name, far):
    """In float32 exp(90) is; a clip then drops the token, and infinity times 0 is NaN for the whole batch."""
    spec = loss.LOSSES.specs[name]
    lp = torch.tensor([-0.1, -100.0, -0.1, -100.0], requires_grad=True)
    old = torch.full((4,), far)
    old[1::2] = -0.2
    adv = torch.tensor([1.0, 1.0, -1.0, -1.0])
    t = Terms(lp, old, adv, torch.tensor([0, 0, 1, 1]), 2, old, lp.detach(), torch.zeros(4, dtype=torch.bool))
    found = evaluate(spec, t, loss.LossOptions(ratio_level=spec.ratio or "token"))
    found.value.sum().backward()
    assert bool(torch.isfinite(lp.grad).all()) and bool(torch.isfinite(found.value).all())


@pytest.mark.parametrize("n,score", [(3, 0.1), (7, 979046562324528.6), (10, -22821035568071.914)])
@pytest.mark.parametrize("std", ["group", "population", "none"])
def test_equal_scores_have_no_advantage_however_large(n, score, std):
    x = advantage.Inputs(torch.full((n,), score, dtype=torch.float64), torch.zeros(n, dtype=torch.long), 1, torch.ones(n).double(),
                         torch.arange(n))  # fmt: skip
    for name in ("grpo", "rloo"):
        assert not bool(advantage.ESTIMATORS.specs[name].function(x, advantage.Options(std=std)).any())


def test_a_batch_without_an_advantage_is_told(tmp_path, tiny):
    report = train(tmp_path, tiny, groups(scores=[1.0] * 4))
    assert report["grad_norm"] == 0 and report["groups/zero_variance"] == 4
    assert any("every advantage of a batch is 0" in w for w in report["warnings"])
    assert not train(tmp_path, tiny, groups())["warnings"]
    assert not train(tmp_path, tiny, groups(scores=[1.0] * 4), loss={"name": "sft"})["warnings"]


def test_a_batch_that_is_rejected_whole_is_told(tmp_path, tiny):
    rules = {"mismatch_limit": 0, "rejections": [{"rule": "token_k3", "high": 1e-9}]}
    report = train(tmp_path, tiny, groups(), correction=rules)
    assert report["rejected/frac"] == 1 and report["grad_norm"] == 0
    assert any("every token of a batch was rejected" in w for w in report["warnings"])


def test_normalisation_of_what_nobody_sent_is_told(tmp_path, tiny):
    given = {"normalization": "batch"}
    told = "advantages.normalization = batch normalizes advantages that environments send"
    assert any(told in w for w in train(tmp_path, tiny, groups(), advantages=given)["warnings"])
    sent = groups(advantages=[[0.5], [1.0], [0.0], [-1.0]])
    for raw, more in ((groups(), {"normalize_scope": "all"}), (sent, {})):
        assert not train(tmp_path, tiny, raw, advantages={**given, **more})["warnings"]


def test_an_empty_mini_batch_hides_no_mismatch(tmp_path, tiny):
    """Whether inference serves these weights is asked of the first optimizer step: it must be one with tokens."""
    raw = groups()
    for g in raw:
        g["inference_logprobs"] = [[-30.0] * len(t) for t in g["tokens"]]
    raw[0]["masks"] = [[-100] * len(t) for t in raw[0]["tokens"]]
    with pytest.raises(errors.MismatchError):
        train(tmp_path, tiny, raw, data={"mini_batch_size": 4})
    raw = groups()
    raw[0]["masks"] = [[-100] * len(t) for t in raw[0]["tokens"]]
    report = train(tmp_path, tiny, raw, data={"mini_batch_size": 4})
    assert report["optimizer_steps"] == 3


def test_infinite_advantages_name_the_estimator():
    @estimator("mine")
    def mine(x, o):
        return x.score / (x.score - x.score)

    b = build(groups(1))
    x = advantage.Inputs(b.score.double(), b.group, 1, b.length.double(), b.seq)
    with pytest.raises(ValueError, match=r"estimator 'mine': 4 of 4 advantages are NaN or infinite"):
        advantage.estimate(mine.estimator, x, advantage.Options())


def test_any_seed_will_do(tmp_path, tiny):
    """That of what a loss draws is made of it, and would not fit into 64 bits."""
    report = train(tmp_path, tiny, groups(), loss={"name": "clip_cov"}, seed=2**60)
    assert report["optimizer_steps"] == 1


@pytest.mark.parametrize("lora,part", [
    ({"target_modules": ["q_proj", "nonsense"]}, "the model has no layer nonsense (others of the list: q_proj)"),
    ({"target_modules": ["nonsense"]}, "nonsense"),
    ({"layers": [0, 2]}, "lora.layers: the model has no layer 2"),
    ({"layers": [0, -1]}, "lora.layers: the model has no layer -1"),
    ({"layers": [9]}, "lora"),
])  # fmt: skip
def test_adapters_of_missing_layers_are_refused(tmp_path, tiny, lora, part):
    from worker.model import ModelError

    with pytest.raises(ModelError) as e:
        stepper(tmp_path, tiny, lora={"rank": 2, **lora})
    assert part in str(e.value)


def test_all_linear_layers_of_some_decoder_layers(tmp_path, tiny):
    s = stepper(tmp_path, tiny, lora={"rank": 2, "layers": [1]})
    trained = {n for n, p in s.policy.named_parameters() if p.requires_grad}
    kinds = {n.split(".lora_")[0].rsplit(".", 1)[-1] for n in trained}
    assert all(".layers.1." in n for n in trained)
    assert kinds == {"q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"}


def test_truncation_is_unknown_without_an_end_token(make, api, tiny, monkeypatch):
    from worker import weights
    from worker.model import ModelError

    monkeypatch.setattr(weights, "end_tokens", lambda policy: frozenset())
    with pytest.raises(ModelError, match="names no end token"):
        make(api().url, steps=1, correction={"mask_truncated": True})()
    assert make(api().url, steps=1)().reason == "completed"


def test_a_best_metric_that_is_not_there_is_told(make, api, tmp_path):
    for metric, told in (("reward/mena", True), ("reward/mean", False)):
        w = make(api().url, tmp_path / metric.replace("/", "_"), steps=1, keep_best=1, best_metric=metric)()
        warnings = [e["message"] for e in w.read() if e["type"] == "warning"]
        assert any("there is no metric reward/mena (best_metric)" in text for text in warnings) == told
