"""Commands of the supervisor to a running worker: weights for inference, log-probabilities, changes, turns on the GPU."""

import json
import socket
import time

import pytest
import torch
from recipe_sdk import errors
from recipe_sdk.control import Control
from recipe_sdk.receive.handles import open_tensors
from recipe_sdk.testing import Supervisor, wait_for


def test_log_probabilities_prove_a_publication(make, api, tmp_path):
    from transformers import AutoModelForCausalLM

    server = api()
    w = make(server.url, steps=2, wait_for_sync=True).background()
    ids = [3, 14, 15, 9, 26, 5]
    w.answer("turn")  # nobody shares its device, so it does not ask again
    for step in (1, 2):
        assert w.supervisor.wanted("sync") == {"step": step, "ahead": True} and w.bridge.version == step - 1
        status, answer = w.call("publish", version=step, transport="reload", dir=str(tmp_path / "served"))
        assert status == "ok" and answer["dtype"] == "float64" and answer["rounded"] is False
        served = AutoModelForCausalLM.from_pretrained(tmp_path / "served")
        want = served(torch.tensor([ids])).logits[0].log_softmax(-1)[range(5), ids[1:]]
        _, proof = w.call("logprobs", token_ids=ids)
        assert proof["policy_version"] == step - 1, "the supervisor has not said that it is served"
        assert torch.allclose(torch.tensor(proof["logprobs"], dtype=torch.float64), want, atol=1e-9)
        w.answer("sync", version=step)
    w.join()
    assert w.bridge.version == 2
    assert server.versions == [], "the sync block alone tells the trajectory API"
    assert [m["staleness/max"] for m in w.metrics()] == [0, 1]


def test_sync_deadline_names_what_was_awaited(make, api):
    w = make(api().url, wait_for_sync=True, sync_timeout=0.2).background()
    w.answer("turn")
    with pytest.raises(errors.SyncTimeout, match="did not serve them"):
        w.join()


# docs: troubleshooting.md A trained group that no longer fits, an adapter that is not served, a merged checkpoint …
def test_adapters_are_published_for_inference(make, api, tmp_path):
    from peft import PeftModel
    from transformers import AutoModelForCausalLM

    w = make(api(limit=1).url, lora={"rank": 4}, publish_every=5).background()
    wait_for(w, "waiting")
    until = time.monotonic() + 300
    while w.bridge.step < 1 and time.monotonic() < until:
        time.sleep(0.02)
    ids = [3, 14, 15, 9]
    _, proof = w.call("logprobs", token_ids=ids)
    assert w.call("publish", version=1, transport="lora", dir=str(tmp_path / "adapter"))[0] == "ok"
    assert w.call("publish", version=2, transport="reload", dir=str(tmp_path / "whole"))[0] == "ok"
    assert w.call("publish", version=3, transport="pigeon", dir="x")[0] == "error"
    _, memory = w.call("publish", version=3, transport="ipc")  # merged, as in files
    key = memory["handles"]["key"]
    for have, told in ((key, {"key": key, "same": True}), ("of another life", memory["handles"])):
        assert w.call("publish", version=3, transport="ipc", have=have)[1]["handles"] == told
    held = open_tensors(memory["handles"])
    assert held.map[0] == 3 and memory["kept"]  # the version precedes the weights
    assert "handles" not in [e for e in w.read() if e["type"] == "weights"][-1]
    refused = w.call("tokenize", text="This model has no tokenizer.")
    assert refused[0] == "error" and "tokenizer" in refused[1]["message"] and refused[1]["data"]["checks"]
    from safetensors.torch import load_file

    whole = load_file(tmp_path / "whole" / "model.safetensors")
    names = [t["name"] for t in memory["handles"]["tensors"]]
    assert sorted(names) == sorted(whole)
    assert all(torch.equal(a, whole[n]) for n, a in zip(names, held, strict=True))
    base = AutoModelForCausalLM.from_pretrained(w.config.model.path, dtype=torch.float64)
    for served in (
        PeftModel.from_pretrained(base, tmp_path / "adapter", autocast_adapter_dtype=False),
        AutoModelForCausalLM.from_pretrained(tmp_path / "whole", dtype=torch.float64),
    ):
        got = served(torch.tensor([ids])).logits[0].log_softmax(-1)[range(3), ids[1:]]
        assert torch.allclose(torch.tensor(proof["logprobs"], dtype=torch.float64), got.double(), atol=1e-6)
    w.stop()
    w.join()


# docs: troubleshooting.md A checkpoint saved in bfloat16 rounds the training away
def test_a_tied_model_is_published_untied_and_rounded(make, api, tmp_path):
    from transformers import AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM

    LlamaForCausalLM(LlamaConfig(
        vocab_size=61, hidden_size=16, intermediate_size=16, num_hidden_layers=1, num_attention_heads=2,
        num_key_value_heads=1, tie_word_embeddings=True,
    )).save_pretrained(tmp_path / "tied")  # fmt: skip
    w = make(api().url, model_path=str(tmp_path / "tied"), steps=1, wait_for_sync=True).background()
    w.answer("turn")
    w.supervisor.wanted("sync")
    body = {"version": 1, "transport": "restart", "dir": str(tmp_path / "out"), "untie_embeddings": True}
    status, answer = w.call("publish", **body)
    assert status == "ok"
    config = json.loads((tmp_path / "out" / "config.json").read_text())
    assert config["tie_word_embeddings"] is False
    served = AutoModelForCausalLM.from_pretrained(tmp_path / "out")
    assert torch.equal(served.lm_head.weight, w.trainer.policy.causal.model.embed_tokens.weight)
    _, answer = w.call("publish", **{**body, "dtype": "bfloat16", "version": 2, "untie_embeddings": False})
    assert answer["rounded"] is True and answer["dtype"] == "bfloat16"
    assert json.loads((tmp_path / "out" / "config.json").read_text())["tie_word_embeddings"] is True
    w.stop()
    w.join()


def test_commands(make, api):
    w = make(api(limit=2).url, steps=50).background()
    try:
        until = time.monotonic() + 300
        while w.bridge.step < 2 and time.monotonic() < until:
            time.sleep(0.02)
        code, answer = w.call("nothing")
        assert code == -32601 and "no such method" in answer["message"]
        assert w.call("update", optimizer={"learning_rate": 5e-4})[1]["changed"] == ["optimizer.learning_rate"]
        code, answer = w.call("update", lora={"rank": 3})
        assert code == "bad_setting" and "restart" in answer["message"]
        assert w.call("update", optimizer={"learning_rat": 1})[0] == "bad_setting"
        code, answer = w.call("update", kl={"coefficient": 0.1})  # nothing to compare with is loaded
        assert code == "bad_setting" and "reference policy" in answer["message"]
        assert w.trainer.stepper.config.kl.coefficient == 0
        assert w.call("logprobs", token_ids=[1])[0] == "error"
        assert w.call("logprobs")[0] == "bad_request"
        code, answer = w.call("checkpoint")
        assert code == "ok" and answer["checkpoint"].endswith("step_2")
    finally:
        w.stop()
        w.join()
    assert w.reason == "stopped"
    assert w.trainer.stepper.config.optimizer.learning_rate == 5e-4


def test_a_worker_whose_supervisor_dies_saves_and_ends(make, api):
    w = make(api(limit=1).url, steps=50).background()
    until = time.monotonic() + 300
    while w.bridge.step < 1 and time.monotonic() < until:
        time.sleep(0.02)
    w.supervisor.connection.shutdown(socket.SHUT_RDWR)
    w.join()
    assert w.reason == "stopped" and w.events.snapshot()["checkpoint"].endswith("step_1")


def test_a_worker_with_another_token_is_refused(make, api):
    s = Supervisor("another")
    with pytest.raises(errors.WorkerError, match="the token is wrong"):
        Control(s.address, "abc")
    s.close()


def test_weights_that_cannot_be_served_end_the_run(make, api):
    w = make(api().url, wait_for_sync=True).background()
    connection, number, params = w.supervisor.asked["turn"].get(timeout=300)
    assert params == {"step": 1}
    w.supervisor._send(connection, {"id": number, "error": {"code": -32603, "message": "inference does not sleep"}})
    with pytest.raises(errors.WorkerError, match="inference does not sleep"):
        w.join()
