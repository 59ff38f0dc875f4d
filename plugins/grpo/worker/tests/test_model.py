"""The model side: chunked head against plain softmax, packing, micro-batches, ranks, adapters off for the reference."""

import dataclasses
import socket

import pytest
import torch
from recipe_sdk import Checkpoint, fields, publish
from recipe_sdk.checkpoint import newest, read_state
from recipe_sdk.events import Events
from recipe_sdk.groups import ReadOptions, read_group
from recipe_sdk.ranks import Ranks
from recipe_sdk.testing import make_group

from worker import batch as batches
from worker import checkpoint, config, estimate, model, optim, recompute, shards, spread
from worker.logprob import HeadOptions, token_logprobs
from worker.memory import Memory
from worker.metrics import Clock
from worker.step import Stepper
from worker.weights import merged

from . import processes, two_ranks
from .conftest import attached, settings

CPU = torch.device("cpu")


@pytest.mark.parametrize("o", [
    HeadOptions(chunk=3), HeadOptions(chunk=100), HeadOptions(chunk=2, scale=0.25, softcap=3.0),
], ids=["small-chunks", "one-chunk", "scaled-capped"])  # fmt: skip
@pytest.mark.parametrize("biased", [False, True])
def test_chunked_head_equals_plain_softmax(o, biased):
    g = torch.Generator().manual_seed(0)
    rand = lambda *s: torch.randn(*s, generator=g, dtype=torch.float64)  # noqa: E731
    label, warm = torch.tensor([1, 0, 6, 3, 3, 2, 5]), rand(7).abs() + 0.5
    gl, gh = rand(7), rand(7)
    results = []
    base = [rand(7, 4), rand(8, 4), rand(8) if biased else None]
    for mine in (True, False):
        h, w, b = (x.clone().requires_grad_() if x is not None else None for x in base)
        if mine:
            lp, entropy, squared = token_logprobs(
                h, w, b, label, warm, dataclasses.replace(o, entropy=True, entropy_gradient=True, squared=True)
            )
        else:
            z = h @ w.t() if b is None else h @ w.t() + b
            z = z * o.scale
            z = o.softcap * torch.tanh(z / o.softcap) if o.softcap else z
            full = (z / warm[:, None]).log_softmax(-1)
            lp, entropy = full[range(7), label], -(full.exp() * full).sum(-1)
            squared = (2 * full).exp().sum(-1)
        (lp @ gl + entropy @ gh).backward()
        results.append([lp, entropy, squared, h.grad, w.grad] + ([b.grad] if biased else []))
    for a, b in zip(*results, strict=True):
        assert float((a - b).detach().abs().max()) < 1e-12


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
@pytest.mark.parametrize("o", [HeadOptions(chunk=3), HeadOptions(chunk=2, scale=0.25, softcap=3.0)])
@pytest.mark.parametrize("biased", [False, True])
def test_a_frozen_heads_gradient_comes_with_the_logits(monkeypatch, o, dtype, biased):
    """The one that a training head finds by calculating them again, with and without a loss on the entropy."""
    g = torch.Generator().manual_seed(0)
    rand = lambda *s: torch.randn(*s, generator=g, dtype=torch.float64).to(dtype)  # noqa: E731
    label, warm, gl = torch.tensor([1, 0, 6, 3, 3, 2, 5]), rand(7).abs() + 0.5, rand(7)
    hidden, weight, bias = rand(7, 4), rand(8, 4), rand(8) if biased else None
    o = dataclasses.replace(o, entropy=True, squared=True)

    def run(trains, gradient=False):
        h, w = hidden.clone().requires_grad_(), weight.clone().requires_grad_(trains)
        lp, entropy, squared = token_logprobs(
            h, w, bias, label, warm, dataclasses.replace(o, entropy_gradient=gradient)
        )
        with monkeypatch.context() as m:
            if not trains and not gradient:
                m.setattr("worker.logprob._kernels", lambda _: pytest.fail("logits are calculated again"))
            (lp @ gl.to(lp.dtype) + (entropy.sum() if gradient else 0)).backward()
        return lp, entropy, squared, h.grad

    for gradient in (False, True):
        for a, b in zip(run(False, gradient), run(True, gradient), strict=True):
            assert a.dtype == b.dtype
            torch.testing.assert_close(a, b, rtol=3 * torch.finfo(dtype).eps, atol=3 * torch.finfo(dtype).eps)


def stepper(tmp_path, tiny, ranks=None, **change):
    c = config.from_dict(settings(tmp_path, tiny, "http://unused", **change))
    ranks = ranks or Ranks(model.device_of(c))
    meshes = []
    policy, _ = model.load_policy(c, ranks.device, None, lambda p: meshes.append(spread.put(p, c, ranks)[0]))
    reference = model.Reference(c, policy, ranks.device, *meshes)
    return Stepper(c, policy, reference, optim.build(c, policy.parameters()), ranks, Memory())


def groups(n=3):
    return [read_group(make_group(10 + k, env=k % 2), ReadOptions()) for k in range(n)]


def after_steps(s, n=2):
    """Weights after n steps on the same batch, and the losses."""
    losses = []
    for k in range(n):
        report = s.train(batches.build(groups()), k, Clock(CPU))
        losses.append((report["loss/total"], report["grad_norm"]))
    full = lambda p: p.full_tensor() if hasattr(p, "full_tensor") else p  # noqa: E731
    return losses, {k: full(p.detach()).clone() for k, p in s.policy.named_parameters()}


SETTINGS = {
    "grpo": {"kl": {"coefficient": 0.1}},
    "sequence": {"loss": {"name": "gspo"}, "entropy": {"coefficient": 0.05},
                 "correction": {"importance": "sequence", "importance_normalize": True}},
    "mini-batches": {"data": {"mini_batch_size": 4, "epochs": 2}, "loss": {"name": "kl_cov", "kl_cov_ratio": 0.2}},
    "lora": {"lora": {"rank": 4}, "kl": {"coefficient": 0.1, "reward_coefficient": 0.05}},
    "mixed": {"lora": {"rank": 4}, "kl": {"coefficient": 0.1},
              "model": {"dtype": "float32", "compute_dtype": "bfloat16"}},
    "float8 mixed": {"kl": {"coefficient": 0.1},
                     "model": {"dtype": "float32", "compute_dtype": "bfloat16", "float8": "all"}},
    "clipped": {"optimizer": {"grad_clip": 0.01}},
    "offloaded": {"optimizer": {"offload": True}},
    "otb": {"advantages": {"estimator": "optimal_token_baseline"}, "loss": {"top_entropy": 0.5}},
}  # fmt: skip


def of_ranks(name):
    """Settings for several ranks: whole models, or shards."""
    return fields.merge(
        SETTINGS[name.removeprefix("whole ")], {"model": {"replicate": name.startswith("whole ")}}
    )  # fmt: skip


@pytest.mark.parametrize("change", [{}, {"lora": {"rank": 4}}], ids=["full", "lora"])
def test_as_many_layers_are_recomputed_as_was_decided(tmp_path, tiny, change):
    """The first ones, and the step stays the same; each decision replaces the one before."""
    want, weights = after_steps(stepper(tmp_path, tiny, **change), 4)
    s, got, seen = stepper(tmp_path, tiny, **change), [], []
    s.sizing.decide(s.config, batches.build(groups()))
    # in the layers, not around them: what is recomputed is called again
    for k, layer in enumerate(s.policy.backbone.layers):
        layer.self_attn.register_forward_pre_hook(lambda *_, k=k: seen.append(k))
    assert recompute.by_layer(s.policy.backbone) and len(s.policy.backbone.layers) == 2
    for number, recomputed in enumerate((1, 2, 1, 0)):
        s.sizing.use(dataclasses.replace(s.sizing.choice, recomputed=recomputed))
        assert s.sizing.report()["compute/checkpointing"] == recomputed / 2
        seen.clear()
        report = s.train(batches.build(groups()), number, Clock(CPU))
        got.append((report["loss/total"], report["grad_norm"]))
        passes = seen.count(1) // (1 + (recomputed == 2))
        assert passes and [seen.count(k) for k in range(2)] == [passes * (1 + (k < recomputed)) for k in range(2)]
    assert got == want
    assert all(torch.equal(weights[n], p) for n, p in s.policy.named_parameters())


@pytest.mark.parametrize("name", [n for n in SETTINGS if not n.endswith("mixed")])
def test_settings_of_memory_do_not_change_a_step(tmp_path, tiny, name):
    """Each sequence alone, several rows, one packed row; activations kept or recomputed; head chunks of 2."""
    want, weights = after_steps(stepper(tmp_path, tiny, **SETTINGS[name]))
    for change in (
        {"row_tokens": 1}, {"row_tokens": 30, "head_chunk": 2},
        {"row_tokens": 10_000, "gradient_checkpointing": True}, {"row_tokens": 40, "attention": "eager"},
    ):  # fmt: skip
        got, other = after_steps(stepper(tmp_path, tiny, **fields.merge(SETTINGS[name], {"model": change})))
        exact = 1e-6 if change.get("attention") == "eager" else 1e-10  # eager takes its softmax in float32
        for a, b in zip(want, got, strict=True):
            assert a == pytest.approx(b, abs=exact)
        # Adam divides by the root of squared gradients: where those are ~0 a rounding error moves a weight visibly
        assert all(torch.allclose(weights[k], other[k], atol=1e-6 if exact < 1e-9 else 1e-3) for k in weights)


def test_packed_rows_score_as_single_sequences(tmp_path, tiny):
    s = stepper(tmp_path, tiny)
    b = batches.build(groups())
    packed = s.scores(s.policy, b, entropy=True)
    causal = s.policy.causal
    for i in range(b.n):
        logits = causal(b.tokens[i][None]).logits[0].detach().log_softmax(-1)
        for k, t in enumerate(b.positions[i].tolist()):
            place = int(b.offset[i]) + k
            assert float(packed["lp"][place]) == pytest.approx(float(logits[t - 1, b.tokens[i][t]]), abs=1e-10)
            entropy = -float((logits[t - 1].exp() * logits[t - 1]).sum())
            assert float(packed["entropy"][place]) == pytest.approx(entropy, abs=1e-10)


# docs: troubleshooting.md Temperature or top_p make log-probabilities of the two sides differ
def test_temperature_is_part_of_the_log_probability(tmp_path, tiny):
    raw = make_group(3)
    raw["generation_params"] = {"temperature": 0.5}
    b = batches.build([read_group(raw, ReadOptions())])
    for mode, factor in (("processed", 0.5), ("raw", 1.0)):
        s = stepper(tmp_path, tiny, correction={"logprobs_mode": mode})
        got = s.scores(s.policy, b)["lp"]
        logits = (s.policy.causal(b.tokens[0][None]).logits[0].detach() / factor).log_softmax(-1)
        t = int(b.positions[0][0])
        assert float(got[0]) == pytest.approx(float(logits[t - 1, b.tokens[0][t]]), abs=1e-10)


def test_rows_stay_short_without_varlen_kernels(tmp_path, tiny):
    s = stepper(tmp_path, tiny, model={"row_tokens": 8192})
    b = batches.build(groups(40))
    assert b.total_tokens > 1000
    assert max(r.ids.shape[1] for r, _ in s.rows(b, range(b.n))) <= 256
    s.policy.implementation = "varlen"
    assert len(s.rows(b, range(b.n))) == 1


def test_references_agree(tmp_path, tiny):
    """The frozen copy, the policy with adapters off, and ref_logprobs of the data are the same reference."""
    b = batches.build(groups())
    adapted = stepper(tmp_path, tiny, lora={"rank": 4}, kl={"coefficient": 0.1})
    base = adapted.scores(adapted.policy, b)["lp"]
    with torch.no_grad():
        for n, p in adapted.policy.named_parameters():
            if ".lora_B" in n:
                p.add_(0.1)
    adapted.policy.merged.refresh()
    assert config.source_of(adapted.config) == "lora_off"
    off = adapted.reference_scores(b)
    assert torch.allclose(off, base, atol=1e-12)
    assert not torch.allclose(adapted.scores(adapted.policy, b)["lp"], base, atol=1e-3)
    copied = stepper(tmp_path, tiny, kl={"coefficient": 0.1})
    assert config.source_of(copied.config) == "copy"
    assert torch.allclose(copied.reference_scores(b), base, atol=1e-12)
    from_data = stepper(tmp_path, tiny, kl={"coefficient": 0.1}, reference={"source": "data"})
    b.ref = base
    assert torch.equal(from_data.reference_scores(b), base)


def test_unknown_output_heads_are_refused(tmp_path, tiny):
    s = stepper(tmp_path, tiny)
    s.policy.head_options = HeadOptions(scale=1.5)
    with pytest.raises(model.ModelError, match="own logits"):
        model.verify_head(s.policy, CPU)


@pytest.mark.parametrize("target", ["lm_head", "embed_tokens"])
def test_unpublishable_adapters_are_refused_early(tmp_path, tiny, target):
    with pytest.raises(model.ModelError, match=f"lora.target_modules: .*{target}") as e:
        stepper(tmp_path, tiny, lora={"rank": 4, "target_modules": ["q_proj", target]})
    assert e.value.setting == "lora.target_modules" and e.value.checks


@pytest.mark.parametrize(
    ("lora", "setting"),
    [({"target_modules": ["nope"]}, "lora.target_modules"), ({"target_modules": ["q_proj", "nope"]}, "lora.target_modules"),
     ({"layers": [99]}, "lora.layers")],
)  # fmt: skip
def test_adapters_of_missing_layers_name_their_setting(tmp_path, tiny, lora, setting):
    with pytest.raises(model.ModelError, match=setting) as e:
        stepper(tmp_path, tiny, lora={"rank": 4, **lora})
    assert e.value.setting == setting and e.value.checks


def test_learning_rate_schedules():
    c = config.from_dict({"model": {"path": "x"}, "data": {"url": "u"}, "steps": 10, "optimizer": {
        "learning_rate": 1.0, "schedule": "linear", "warmup_steps": 2, "min_ratio": 0.1}})  # fmt: skip
    assert [round(optim.learning_rate(c, k), 4) for k in (0, 1, 2, 6, 10, 50)] == [0.5, 1.0, 1.0, 0.55, 0.1, 0.1]
    c = config.update(c, {"optimizer": {"schedule": "cosine"}})
    assert optim.learning_rate(c, 6) == pytest.approx(0.55)


# docs: troubleshooting.md A step that depends on how the batch was split
# docs: weights.md Tests
def test_two_ranks_take_the_same_step_as_one(tmp_path, tiny, tied):
    """Over two gloo processes, by FSDP2 and with whole models: losses, gradient norms and weights equal those of a
    single process, and nothing that a sync block asks for in between makes a difference."""
    names = ("grpo", "lora", "mini-batches", "mixed", "offloaded", "float8 mixed", "whole mixed", "whole mini-batches",
             "whole lora")  # fmt: skip
    models = {name: tiny for name in names} | {"clipped": tied, "whole clipped": tied}
    out = tmp_path / "ranks.pt"
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    both = [processes.start(two_ranks.main, r, port, models, str(tmp_path), str(out)) for r in range(2)]
    assert [processes.finish(p, 600) for p in both] == [0, 0]
    results = torch.load(out)
    for name, path in models.items():
        settings_of = SETTINGS[name.removeprefix("whole ")]
        want, weights = after_steps(stepper(tmp_path, path, **settings_of))
        got, other, published, proved = results[name]
        if name.endswith("mixed"):  # bfloat16 arithmetic differs with the split; gradients still arrive in float32
            for a, b in zip(want, got, strict=True):
                assert a == pytest.approx(b, rel=0.05, abs=0.01)
            assert {v.dtype for v in other.values()} == {torch.float32}
            continue
        for a, b in zip(want, got, strict=True):
            assert a == pytest.approx(b, abs=1e-10)
        assert set(other) == set(weights)
        assert all(torch.allclose(weights[k], other[k], atol=1e-6) for k in weights)
        one = stepper(tmp_path, path, **settings_of)
        after_steps(one)
        alone = dict(merged(one.policy))
        assert set(published) == set(alone)
        assert publish.logprobs(attached(one), {"token_ids": [3, 14, 15, 9]})["logprobs"] == pytest.approx(proved)
        assert all(torch.allclose(alone[k], published[k], atol=1e-6) for k in alone)
        # what two ranks saved, one process resumes: its third step is the third step of the unbroken run
        # be its moments in the host's memory or not
        resumed = stepper(tmp_path, path, **fields.merge(settings_of, {"optimizer": {"offload": False}}))
        saved = newest(tmp_path / name)
        checkpoint.load_weights(saved, resumed.policy)
        checkpoint.load_training(
            Checkpoint(saved, 2, read_state(saved)), resumed.policy, resumed.optimizer, name="adamw"
        )
        single = stepper(tmp_path, path, **settings_of)
        after_steps(single)
        for a, b in zip(after_steps(single, 1)[0], after_steps(resumed, 1)[0], strict=True):
            assert a == pytest.approx(b, abs=1e-6)


def test_sequence_ratios_keep_token_advantages_apart(tmp_path, tiny):
    """With advantages from the environment a sequence-level ratio becomes GSPO-token: a token with advantage 0 gets no
    gradient of its own, which one shared ratio would give it."""

    def loss_of(level, advantages):
        raw = [make_group(10)]
        raw[0]["advantages"] = advantages(raw[0])
        s = stepper(tmp_path, tiny, loss={"ratio_level": level, "dual_clip": None})
        report = s.train(batches.build([read_group(g, ReadOptions()) for g in raw]), 0, Clock(CPU))
        return report["grad_norm"]

    def last_only(g):
        return [[0.0] * (len(t) - 1) + [1.0] for t in g["tokens"]]

    assert loss_of("sequence", last_only) == pytest.approx(loss_of("sequence_token", last_only), abs=1e-12)
    assert loss_of("sequence", lambda g: None) > 0


def test_negative_cross_entropy_weights_are_warned_of(tmp_path, tiny):
    b = batches.build(groups())
    free = stepper(tmp_path, tiny, loss={"name": "weighted_sft"}).train(b, 0, Clock(CPU))
    assert "advantages.clip" in free["warnings"][0]
    bounded = stepper(tmp_path, tiny, loss={"name": "weighted_sft"}, advantages={"clip": [-1.0, 1.0]})
    assert not bounded.train(b, 0, Clock(CPU))["warnings"]


def test_the_kl_in_the_reward_adapts_to_its_target(tmp_path, tiny):
    """Twice the target at least: the coefficient grows by 0.2 x sequences / horizon each step; below it, it shrinks."""
    b = batches.build(groups())
    for target, sign in ((1e-9, 1), (1e3, -1)):
        kl = {
            "coefficient": 0.0,
            "reward_coefficient": 0.1,
            "adaptive_target": target,
            "adaptive_horizon": 60,
            "reward_estimator": "k2",
        }
        s = stepper(tmp_path, tiny, kl=kl)
        with torch.no_grad():
            s.policy.causal.lm_head.weight.mul_(1.5)  # away from the reference, which holds its own
        used = [s.train(b, k, Clock(CPU))["kl/reward_coefficient"] for k in range(3)]
        step = 1 + sign * 0.2 * b.n / 60
        assert used == pytest.approx([0.1, 0.1 * step, 0.1 * step**2])


@pytest.mark.parametrize("kind", ["", "fused", "shards"])
def test_infinite_gradients_are_skipped_and_reported(tmp_path, tiny, kind):
    """By us, or by an optimizer that looks itself (fused, as on a GPU), which makes the same steps otherwise."""
    raw = [make_group(10 + k) for k in range(2)]
    raw[1]["advantages"] = [[3e38]] * 4
    s, usual = (stepper(tmp_path, tiny, data={"mini_batch_size": 4}) for _ in range(2))
    if kind:
        adamw = torch.optim.AdamW if kind == "fused" else shards.AdamW
        s.optimizer = adamw(s.parameters, 1e-3, (0.9, 0.999), 1e-8, 0.0, fused=True)
        usual.optimizer = torch.optim.AdamW(usual.parameters, 1e-3, (0.9, 0.999), 1e-8, 0.0)
        assert optim.leave_out(s.optimizer, torch.tensor(False))
    assert not optim.leave_out(usual.optimizer, torch.tensor(False))
    report = s.train(batches.build([read_group(g, ReadOptions()) for g in raw]), 0, Clock(CPU))
    assert (report["optimizer_steps"], report["optimizer_skipped"]) == (1, 1)
    assert "not finite" in report["warnings"][0]
    assert all(bool(torch.isfinite(p).all()) for p in s.policy.parameters())
    report = s.train(batches.build(groups()), 1, Clock(CPU))
    assert (report["optimizer_steps"], report["optimizer_skipped"], report["warnings"]) == (3, 0, [])
    usual.train(batches.build([read_group(g, ReadOptions()) for g in raw]), 0, Clock(CPU))
    usual.train(batches.build(groups()), 1, Clock(CPU))
    for p, q in zip(s.parameters, usual.parameters, strict=True):
        assert torch.allclose(p, q, atol=1e-12) and int(s.optimizer.state[p]["step"]) == 4


def test_a_skipped_batch_changes_no_training_state(tmp_path, tiny):
    s = stepper(
        tmp_path, tiny, advantages={"normalization": "global", "normalize_scope": "all"},
        entropy={"coefficient": 0.01, "adaptive": True}, correction={"mismatch_limit": 1e-6, "mismatch_action": "skip"},
    )  # fmt: skip
    before = s.memory.state()
    assert s.train(batches.build(groups()), 0, Clock(CPU))["absurd"]
    assert s.memory.state() == before
    s.config = config.update(s.config, {"correction": {"mismatch_limit": 1.0}})
    s.train(batches.build(groups()), 0, Clock(CPU))
    assert s.memory.normalizer.steps == 1 and s.memory.entropy is not None


def test_events_have_no_word_for_infinity(tmp_path):
    e = Events(str(tmp_path / "e.jsonl"))
    e.emit("x", value=float("nan"), nested={"a": [float("inf"), 1.0]})
    e.close()
    assert (tmp_path / "e.jsonl").read_text().count("null") == 2


@pytest.mark.parametrize("mini_batch", [0, 4])
def test_the_early_forward_pass_is_trained_on(tmp_path, tiny, monkeypatch, mini_batch):
    """A row goes forward once for its gradient, and the first one before there are advantages."""
    s = stepper(tmp_path, tiny, data={"mini_batch_size": mini_batch})
    b, seen = batches.build(groups()), []
    forward, advantages = s.policy.forward, estimate.advantages

    def passed(row, *args, **kwargs):
        if torch.is_grad_enabled():
            seen.append(tuple(row.sequences))
        return forward(row, *args, **kwargs)

    def estimated(*args):
        seen.append("advantages")
        return advantages(*args)

    monkeypatch.setattr(s.policy, "forward", passed)
    monkeypatch.setattr(estimate, "advantages", estimated)
    s.train(b, 0, Clock(CPU))
    rows = [tuple(r.sequences) for part in batches.split(b, mini_batch) for r, _ in s.rows(b, part)]
    assert seen == [rows[0], "advantages", *rows[1:]] and len(rows) > 1
