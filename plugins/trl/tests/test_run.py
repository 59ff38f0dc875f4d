"""A run as processes: published, killed, resumed, over two ranks."""

import json
import os
import signal
import time
from types import SimpleNamespace

import pytest
import torch
from recipe_sdk import Bridge, products
from recipe_sdk.checkpoint import complete
from recipe_sdk.fields import ConfigError
from recipe_sdk.testing import Supervisor, scores_of
from recipe_sdk.trl import run

from .conftest import LIMIT, events, exposed, given, metrics, ragged, trained

ADAPTERS = {"use_peft": True, "lora_r": 4, "lora_dropout": 0.1, "lora_target_modules": ["q_proj", "v_proj"]}


def until(folder, process, what):
    """The first true value, while the trainer lives."""
    end = time.monotonic() + LIMIT
    while time.monotonic() < end:
        if found := what():
            return found
        assert process.poll() is None, (folder / "log").read_text()
        time.sleep(0.02)
    raise AssertionError((folder / "log").read_text())


def same(a, b, rel=1e-5):
    """Metrics of a step are those of another run's."""
    for what in ("loss/total", "grad_norm", "learning_rate", "entropy", "reward/mean"):
        assert a[what] == pytest.approx(b[what], rel=rel, abs=1e-7), what


@pytest.mark.parametrize("config", [
    pytest.param({"lr_scheduler_type": "linear"}, id="all weights", marks=pytest.mark.short),
    pytest.param(ADAPTERS, id="adapters"),
])  # fmt: skip
def test_a_killed_run_goes_on_exactly_where_it_was(config, tmp_path, tiny, api, start):
    whole = trained(tmp_path / "whole", given(tmp_path / "whole", tiny, api().url, config, steps=5))
    folder, server = tmp_path / "killed", api()
    settings = given(folder, tiny, server.url, config, steps=5, save_every=2)
    first = start(folder, settings)
    until(folder, first, lambda: 3 in metrics(folder))
    first.send_signal(signal.SIGKILL)
    first.wait()
    assert complete(folder / "checkpoints")[-1].name in ("step_2", "step_4")
    second = start(folder, settings)
    assert second.wait(LIMIT) == 0, (folder / "log").read_text()
    assert any(e["type"] == "resumed" for e in events(folder, "resumed"))
    again = metrics(folder)  # what was trained again stands here, not what came first
    assert sorted(again) == [1, 2, 3, 4, 5]
    for step, found in again.items():
        same(found, whole[step])
    batches = {e["step"]: e["batch"] for e in events(folder, "metric")}
    assert batches == {k: k - 1 for k in range(1, 6)}, "no batch is lost or trained twice"


@pytest.mark.parametrize(("deepspeed", "grouped"), [("zero2.json", True), (None, False)])
def test_deepspeed_on_one_gpu_has_a_group(deepspeed, grouped, monkeypatch):
    """Without one it looks for MPI, which few have."""
    monkeypatch.setattr(os, "environ", {})
    seen = []
    args = SimpleNamespace(device=torch.device("cpu"), deepspeed=deepspeed, ddp_timeout=60)
    trainer = SimpleNamespace(
        found=None, args=args,
        train=lambda **_: seen.append((torch.distributed.is_initialized(), os.environ.get("LOCAL_RANK"))),
    )  # fmt: skip
    try:
        run(trainer)
    finally:
        if torch.distributed.is_initialized():
            torch.distributed.destroy_process_group()
    assert seen == [(grouped, "0" if grouped else None)]


def loaded(folder, ids):
    """Log-probabilities that an inference server would give from a folder of weights."""
    from transformers import AutoModelForCausalLM

    with torch.no_grad():
        logits = AutoModelForCausalLM.from_pretrained(folder).float()(torch.tensor([ids])).logits[0, :-1]
    return logits.log_softmax(-1).gather(-1, torch.tensor(ids[1:])[:, None]).squeeze(-1)


@pytest.mark.parametrize("ranks", [pytest.param(1, marks=pytest.mark.short), 2])
def test_a_step_reports_its_tokens(ranks, tmp_path, tiny, api, start):
    server, folder = api(), tmp_path / "run"
    run = start(folder, given(folder, tiny, server.url), ranks)
    assert run.wait(LIMIT) == 0, (folder / "log").read_text()
    for found, sent in zip(server.trained[0], ragged(0), strict=True):
        assert found["logprobs"] == pytest.approx(scores_of(tiny, sent), abs=1e-4)
        assert len(found["advantages"]) == len(found["logprobs"]) and any(found["advantages"])
    (said,) = events(folder, "loaded")
    assert said["dtype"] == said["compute_dtype"] == "float32"


@pytest.mark.parametrize(("config", "dtype", "computes"), [
    pytest.param({"bf16": True}, "float32", "bfloat16", id="under autocast"),
    pytest.param({**ADAPTERS, "model_init_kwargs": {"dtype": "bfloat16"}}, "float32", "bfloat16",
                 id="adapters in float32 on a base in bfloat16"),
])  # fmt: skip
def test_it_says_how_it_computes(config, dtype, computes, tmp_path, tiny, api, start):
    """The check of an update allows for it."""
    folder = tmp_path / "run"
    run = start(folder, given(folder, tiny, api().url, config))
    assert run.wait(LIMIT) == 0, (folder / "log").read_text()
    (said,) = events(folder, "loaded")
    assert (said["dtype"], said["compute_dtype"]) == (dtype, computes)


def test_it_asks_whether_its_device_multiplies_right(tmp_path, tiny, api, monkeypatch):
    asked = []
    monkeypatch.setattr(products, "check", lambda model, device, dtype: asked.append((device.type, dtype)))
    trained(tmp_path / "run", given(tmp_path / "run", tiny, api().url))
    assert asked == [("cpu", torch.float32)]


@pytest.mark.parametrize("config", [{}, ADAPTERS], ids=["all weights", "adapters"])
def test_weights_are_published_and_proved(config, tmp_path, tiny, api, start):
    folder, ids, supervisor = tmp_path / "run", [3, 14, 15, 9, 26, 5], Supervisor()
    run = start(folder, given(folder, tiny, api().url, config, steps=1, wait_for_sync=True, control=supervisor.address,
                              control_token="abc"))  # fmt: skip
    supervisor.answer("turn", {"version": 0, "shared": False})
    assert supervisor.wanted("sync") == {"step": 1}

    def call(name, **params):
        status, answer = supervisor.call(name, params)
        assert status == "ok", answer
        return answer

    answer = call("publish", version=1, transport="reload", dir=str(tmp_path / "v1"))
    assert answer["rounded"] is False and answer["dtype"] == "float32"
    proof = torch.tensor(call("logprobs", token_ids=ids)["logprobs"])
    assert torch.allclose(loaded(tmp_path / "v1", ids), proof, atol=1e-4)
    assert not torch.allclose(loaded(tiny, ids), proof, atol=1e-4), "a step changes the policy"
    memory = call("publish", version=1, transport="ipc")
    assert memory["tensors"] == answer["tensors"], "the tied head is sent once, by file and through memory"
    if config:
        from peft import PeftModel
        from transformers import AutoModelForCausalLM

        call("publish", version=1, transport="lora", dir=str(tmp_path / "adapter"))
        PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(tiny), tmp_path / "adapter").merge_and_unload(
        ).save_pretrained(tmp_path / "merged")  # fmt: skip
        assert torch.allclose(loaded(tmp_path / "merged", ids), proof, atol=1e-4)
    assert call("update", steps=2)["changed"] == ["steps"]
    supervisor.answer("sync", {"version": 1, "shared": False})
    assert supervisor.wanted("sync") == {"step": 2}, "steps were raised while it ran"
    call("checkpoint")
    supervisor.answer("sync", {"version": 2, "shared": False})
    assert run.wait(LIMIT) == 0, (folder / "log").read_text()
    last = complete(folder / "checkpoints")[-1]
    assert last.name == "step_2" and (last / "tokenizer.json").exists()
    assert not torch.allclose(loaded(last, ids), proof, atol=1e-5), "the checkpoint is of the step after"
    supervisor.close()


@pytest.mark.short
def test_two_ranks_train_as_one(tmp_path, tiny, api, start):
    one = trained(tmp_path / "one", given(tmp_path / "one", tiny, api().url, steps=2))
    means = trained(tmp_path / "means", given(tmp_path / "means", tiny, api().url, {"loss_type": "grpo"}, steps=2))
    for name, config, expected in (("sum", {}, one), ("mean of rows", {"loss_type": "grpo"}, means)):
        folder = tmp_path / name
        run = start(folder, given(folder, tiny, api().url, config, steps=2), ranks=2)
        assert not exposed(run, LIMIT), "others can write to a store of its ranks"
        assert run.wait(1) == 0, (folder / "log").read_text()
        found = metrics(folder)
        for step in (1, 2):
            same(found[step], expected[step], rel=1e-4)
        state = json.loads((folder / "checkpoints" / "step_2" / "training" / "state.json").read_text())
        assert state["world"] == 2 and loaded(folder / "checkpoints" / "step_2", [3, 4, 5]).isfinite().all()


@pytest.mark.short
def test_ranks_that_would_train_alone_are_refused(tmp_path, tiny, api, monkeypatch):
    """Each would take its share of a batch, and nobody would add the gradients up."""
    monkeypatch.setattr(Bridge, "world", 2)
    with pytest.raises(ConfigError, match="1 process.* 2 were started"):
        trained(tmp_path, given(tmp_path, tiny, api().url))


def test_a_batch_of_another_temperature_ends_the_run(tmp_path, tiny, api, start):
    def warm(k):
        groups = ragged(k)
        groups[1]["overrides"] = [{"temperature": 0.5}] * 4
        return groups

    folder = tmp_path / "run"
    run = start(folder, given(folder, tiny, api(batch=warm).url))
    assert run.wait(LIMIT) == 1
    (error,) = events(folder, "error")
    assert error["code"] == "data" and "0.5" in error["message"] and "temperature in config" in error["checks"][0]


@pytest.mark.short
def test_a_layer_that_no_model_has_is_named(tmp_path, tiny, api):
    config = {**ADAPTERS, "lora_target_modules": ["q_proj", "v_porj"]}
    trained(tmp_path / "odd", given(tmp_path / "odd", tiny, api().url, config))
    (warning,) = events(tmp_path / "odd", "warning")
    assert warning["message"].startswith("no layer of the model is called v_porj, of target_modules")
    for config in (ADAPTERS, {"peft_config": {"r": 2, "target_modules": "all-linear"}}):
        folder = tmp_path / str(len(config))
        trained(folder, given(folder, tiny, api().url, config))
        assert events(folder, "warning") == []
