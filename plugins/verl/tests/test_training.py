"""verl's engine, fed by recipe: the same numbers as our own worker, exact resumption, weights that can be served."""

import json
import time

import pytest
import torch
from conftest import BYPASS, LIMIT, ROOT
from recipe_sdk.checkpoint import complete
from recipe_sdk.testing import FakeAPI, make_group, scores_of
from safetensors.torch import load_file

OURS = ROOT / ".cache/venv-test/bin/python"
RATE = {"actor": {"optim": {"lr": 1e-2}}}


@pytest.mark.parametrize("world", [1, 2])
def test_a_step_is_the_same_as_our_own_workers(start, world, tiny):
    if not OURS.exists():
        pytest.skip("no .cache/venv-test; scripts/test-python.sh --prepare makes it")
    ours = start("grpo", {
        "kl": {"coefficient": 0.0}, "correction": {"old_policy": "rollout", "importance": "none"},
        "optimizer": {"learning_rate": 1e-6}, "model": {"path": tiny, "device": "cpu"},
    }, module="worker", python=str(OURS))  # fmt: skip
    theirs = start("verl", BYPASS, world=world)
    (a,), (b,) = ours.metrics(), theirs.metrics()
    for name in ("loss/total", "grad_norm"):
        assert b[name] == pytest.approx(a[name], rel=1e-5, abs=1e-6), name
    assert b["reward/mean"] == a["reward/mean"] and b["tokens/trained"] == a["tokens/trained"]
    assert [t.reported("loaded")[0]["compute_dtype"] for t in (ours, theirs)] == ["float32", "float32"]


def test_it_says_how_it_computes(start):
    """The check of an update allows for it: weights in float32 are multiplied in bfloat16, verl's default on a GPU."""
    mixed = {"param_dtype": "bf16", "reduce_dtype": "fp32", "buffer_dtype": "fp32"}
    run = start("mixed", {"actor": {"fsdp_config": {"mixed_precision": mixed}}})
    run.metrics()
    (loaded,) = run.reported("loaded")
    assert loaded["compute_dtype"] == "bfloat16"


# docs: verl.md Weights, checkpoints, resume
@pytest.mark.parametrize("world", [1, 2])
def test_a_killed_run_goes_on_exactly(start, world):
    whole = start("whole", RATE, steps=3, save_every=1, world=world)
    api = FakeAPI()
    try:
        killed = start("killed", RATE, api=api, steps=9, save_every=2, world=world)
        until(lambda: killed.reported("checkpoint"), killed)
        # Step 3 may have begun: its batch is on the disk or was not acknowledged. The next checkpoint is far.
        killed.kill()
        again = start("killed", RATE, api=api, steps=3, save_every=2, world=world)
        expected, found = whole.metrics(), again.metrics()
        assert [e["step"] for e in again.reported("resumed")] == [2]
        last = [e for e in again.reported("metric") if e["step"] == 3][-1]
        assert last["batch"] == 2
        for name in ("loss/total", "grad_norm"):
            assert found[-1][name] == pytest.approx(expected[-1][name], rel=1e-6, abs=1e-7), name
        a, b = (load_file(t.where / "checkpoints/step_3/model.safetensors") for t in (whole, again))
        assert a.keys() == b.keys() and all(torch.equal(a[k], b[k]) for k in a)
    finally:
        api.close()


def until(what, trainer):
    """Waits for something that the trainer brings about."""
    end = time.monotonic() + LIMIT
    while not what():
        assert trainer.process.poll() is None, trainer.text()
        assert time.monotonic() < end, trainer.text()
        time.sleep(0.01)


@pytest.mark.parametrize("world", [1, 2])
def test_a_step_reports_its_tokens(start, world, tiny):
    api = FakeAPI()
    try:
        start("run", RATE, api=api, world=world).metrics()
        for found, sent in zip(api.trained[0], api.batch(0), strict=True):
            assert found["logprobs"] == pytest.approx(scores_of(tiny, sent), abs=1e-4)
            assert len(found["advantages"]) == len(found["logprobs"])
        assert any(a for found in api.trained[0] for a in found["advantages"])
    finally:
        api.close()


def test_a_stateful_model_scores_sequences_apart(start, hybrid):
    api = FakeAPI()
    try:
        start("run", RATE, api=api, model={"path": hybrid}).metrics()
        for found, sent in zip(api.trained[0], api.batch(0), strict=True):
            assert found["logprobs"] == pytest.approx(scores_of(hybrid, sent), abs=1e-4)
    finally:
        api.close()


def test_an_environment_may_have_trl_too(start, tmp_path):
    """TRL as it is since 1.16, without the class that verl changes."""
    (tmp_path / "beside/trl").mkdir(parents=True)
    (tmp_path / "beside/trl/__init__.py").write_text("")
    assert len(start("both", BYPASS, beside=tmp_path / "beside").metrics()) == 1


def test_another_number_of_ranks_is_refused(start):
    first = start("run", RATE, steps=1)
    first.metrics()
    second = start("run", RATE, steps=2, world=2)
    assert second.process.wait(LIMIT) != 0
    error = second.reported("error")[0]
    assert error["code"] == "checkpoint" and "1 processes" in error["message"]


def test_weights_are_those_that_inference_loads(start, tiny, tmp_path):
    from transformers import AutoModelForCausalLM

    run = start("run", RATE, steps=1, wait_for_sync=True, supervised=True)
    run.supervisor.answer("turn", {"version": 0, "shared": True})  # its optimizer leaves the device between turns
    until(lambda: not run.supervisor.asked["sync"].empty(), run)
    to = str(tmp_path / "published")
    answer = call(run, "publish", version=1, transport="reload", dir=to)
    model = AutoModelForCausalLM.from_pretrained(to).float()
    names = {n for n, _ in model.named_parameters()}  # the tied head is not among them
    assert answer["tensors"] == len(names) and set(load_file(f"{to}/model.safetensors")) == names
    assert answer["dtype"] == "float32" and answer["rounded"] is False
    ids = [3, 14, 15, 9, 26, 5]
    proof = torch.tensor(call(run, "logprobs", token_ids=ids)["logprobs"])
    with torch.no_grad():
        logits = model(torch.tensor([ids])).logits[0, :-1].log_softmax(-1)
    assert torch.allclose(logits.gather(-1, torch.tensor(ids[1:])[:, None])[:, 0], proof, atol=1e-4)
    untrained = AutoModelForCausalLM.from_pretrained(tiny).float().state_dict()
    assert any(not torch.equal(v, untrained[n]) for n, v in model.state_dict().items()), "the step moved nothing"
    handles = call(run, "publish", version=1, transport="ipc")["handles"]
    assert {t["name"] for t in handles["tensors"]} == names
    run.supervisor.answer("sync", {"version": 1, "shared": False})
    assert run.process.wait(LIMIT) == 0, run.text()
    assert "Ray" not in run.text() or "Started a local Ray instance" not in run.text()
    assert (complete(run.where / "checkpoints")[-1] / "verl" / "optim_world_size_1_rank_0.pt").exists()


def call(run, name, **params):
    status, answer = run.supervisor.call(name, params)
    assert status == "ok", answer
    return answer


def test_verls_algorithms_are_used(start):
    """A reference and KL in the loss, decoupled correction with weights and rejection, rloo, mini-batches, GSPO."""
    run = start("run", {
        "actor": {"use_kl_loss": True, "kl_loss_coef": 0.1, "ppo_mini_batch_size": 1, "entropy_coeff": 0.01,
                  "policy_loss": {"loss_mode": "gspo"}, "loss_agg_mode": "seq-mean-token-mean", "optim": {"lr": 1e-2}},
        "algorithm": {"adv_estimator": "rloo", "rollout_correction": {
            "rollout_is": "token", "rollout_is_threshold": 2.0, "rollout_rs": "token_k3",
            "rollout_rs_threshold": "0.01"}},
    }, steps=2)  # fmt: skip
    one, two = run.metrics()
    assert one["optimizer_steps"] == 2 and one["entropy"] > 0
    assert one["loss/kl"] < two["loss/kl"], "the policy has moved away from its reference"
    assert one["rollout_corr/rollout_is_mean"] == pytest.approx(1.0, abs=0.2)
    assert 0 < one["rollout_corr/rollout_rs_masked_fraction"] < 1


def test_advantages_of_the_environment_are_taken(start):
    """All zero: nothing is learned."""

    def batch(k):
        groups = [make_group(100 * k + j) for j in range(2)]
        for g in groups:
            g["advantages"] = [[0.0]] * len(g["tokens"])
        return groups

    api = FakeAPI(batch)
    try:
        (only,) = start("run", RATE, api=api).metrics()
    finally:
        api.close()
    assert only["grad_norm"] == 0.0 and only["adv/std"] == 0.0


# docs: survival.md the merged checkpoint is the base model
def test_lora_is_published_merged(start, tmp_path):
    run = start("run", {"model": {"lora_rank": 4, "lora_alpha": 8}, **RATE}, steps=1)
    run.metrics()
    weights = load_file(run.where / "checkpoints/step_1/model.safetensors")
    assert not any("lora" in k for k in weights) and "model.layers.0.self_attn.q_proj.weight" in weights
    config = json.loads((run.where / "checkpoints/step_1/config.json").read_text())
    assert config["model_type"] == "llama"
