"""What the supervisor asks of a worker that runs: weights for inference, log-probabilities, changes, turns on the GPU."""

import json
import time

import pytest
import torch
from recipe_sdk import errors
from recipe_sdk.receive.handles import open_tensors
from recipe_sdk.testing import wait_for


def test_synchronised_publication_is_proved_by_log_probabilities(make, api, tmp_path):
    from transformers import AutoModelForCausalLM

    server = api()
    w = make(server.url, steps=2, wait_for_sync=True).background()
    ids = [3, 14, 15, 9, 26, 5]
    for step in (1, 2):
        state = wait_for(w, "sync")
        assert state["step"] == step and state["policy_version"] == step - 1
        status, answer = w.call(
            "POST", "/publish", {"version": step, "transport": "full", "dir": str(tmp_path / "served")}
        )
        assert status == 200 and answer["dtype"] == "float64" and answer["rounded"] is False
        served = AutoModelForCausalLM.from_pretrained(tmp_path / "served")
        want = served(torch.tensor([ids])).logits[0].log_softmax(-1)[range(5), ids[1:]]
        _, proof = w.call("POST", "/logprobs", {"token_ids": ids})
        assert proof["policy_version"] == step
        assert torch.allclose(torch.tensor(proof["logprobs"], dtype=torch.float64), want, atol=1e-9)
        assert w.call("POST", "/synced", {"version": step + 5})[0] == 409
        assert w.call("POST", "/synced", {"version": step})[0] == 200
    w.join()
    assert server.versions == [0, 1, 2]
    assert [m["staleness/max"] for m in w.metrics()] == [0, 1]


def test_sync_deadline_names_what_was_awaited(make, api):
    w = make(api().url, wait_for_sync=True, sync_timeout=0.2)
    with pytest.raises(errors.SyncTimeout, match="published and acknowledged"):
        w()


def test_adapters_are_published_for_inference(make, api, tmp_path):
    from peft import PeftModel
    from transformers import AutoModelForCausalLM

    w = make(api(limit=1).url, lora={"rank": 4}, publish_every=5).background()
    wait_for(w, "waiting")
    until = time.monotonic() + 300
    while w.call("GET", "/state")[1]["step"] < 1 and time.monotonic() < until:
        time.sleep(0.02)
    ids = [3, 14, 15, 9]
    _, proof = w.call("POST", "/logprobs", {"token_ids": ids})
    assert w.call("POST", "/publish", {"version": 1, "transport": "lora", "dir": str(tmp_path / "adapter")})[0] == 200
    assert w.call("POST", "/publish", {"version": 2, "transport": "full", "dir": str(tmp_path / "whole")})[0] == 200
    assert w.call("POST", "/publish", {"version": 3, "transport": "pigeon", "dir": "x"})[0] == 409
    _, memory = w.call("POST", "/publish", {"version": 3, "transport": "ipc"})  # merged, as in files
    held = open_tensors(memory["handles"])
    assert held.map[0] == 3 and memory["kept"]  # the version stands before the weights
    assert "handles" not in [e for e in w.read() if e["type"] == "weights"][-1]
    refused = w.call("POST", "/logprobs", {"text": "This model has no tokenizer."})
    assert refused[0] == 409 and "tokenizer" in refused[1]["error"]["message"]
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
    assert w.call("POST", "/stop", {})[0] == 200
    w.join()


def test_tied_models_can_be_published_untied_and_rounding_is_said(make, api, tmp_path):
    from transformers import AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM

    LlamaForCausalLM(LlamaConfig(
        vocab_size=61, hidden_size=16, intermediate_size=16, num_hidden_layers=1, num_attention_heads=2,
        num_key_value_heads=1, tie_word_embeddings=True,
    )).save_pretrained(tmp_path / "tied")  # fmt: skip
    w = make(api().url, model_path=str(tmp_path / "tied"), steps=1, wait_for_sync=True).background()
    wait_for(w, "sync")
    body = {"version": 1, "dir": str(tmp_path / "out"), "untie_embeddings": True}
    status, answer = w.call("POST", "/publish", body)
    assert status == 200
    config = json.loads((tmp_path / "out" / "config.json").read_text())
    assert config["tie_word_embeddings"] is False
    served = AutoModelForCausalLM.from_pretrained(tmp_path / "out")
    assert torch.equal(served.lm_head.weight, w.trainer.policy.causal.model.embed_tokens.weight)
    _, answer = w.call("POST", "/publish", {**body, "dtype": "bfloat16", "version": 2, "untie_embeddings": False})
    assert answer["rounded"] is True and answer["dtype"] == "bfloat16"
    assert json.loads((tmp_path / "out" / "config.json").read_text())["tie_word_embeddings"] is True
    w.call("POST", "/stop", {})
    w.join()


def test_commands(make, api):
    w = make(api(limit=2).url, steps=50, control_token="abc").background()
    try:
        assert w.call("GET", "/state")[0] == 401
        call = lambda m, p, b=None: w.call(m, p, b, "abc")  # noqa: E731
        until = time.monotonic() + 300
        while call("GET", "/state")[1]["step"] < 2 and time.monotonic() < until:
            time.sleep(0.02)
        assert call("POST", "/nothing", {})[0] == 404
        assert call("POST", "/update", {"optimizer": {"learning_rate": 5e-4}})[1]["changed"] == [
            "optimizer.learning_rate"
        ]
        status, answer = call("POST", "/update", {"lora": {"rank": 3}})
        assert status == 422 and "restart" in answer["error"]["message"]
        assert call("POST", "/update", {"optimizer": {"learning_rat": 1}})[0] == 422
        status, answer = call("POST", "/update", {"kl": {"coefficient": 0.1}})  # nothing to compare with is loaded
        assert status == 422 and "reference policy" in answer["error"]["message"]
        assert w.trainer.stepper.config.kl.coefficient == 0
        assert call("POST", "/logprobs", {"token_ids": [1]})[0] == 409
        assert call("POST", "/logprobs", {})[0] == 400
        status, answer = call("POST", "/checkpoint", {})
        assert status == 200 and answer["checkpoint"].endswith("step_2")
        status, answer = call("POST", "/stop", {})
        assert status == 200 and answer["step"] == 2
    finally:
        w.join()
    assert w.reason == "stopped"
    assert w.trainer.stepper.config.optimizer.learning_rate == 5e-4


def test_colocated_training_waits_for_its_grant(make, api):
    w = make(api().url, steps=2, wait_for_grant=True).background()
    for _ in range(2):
        wait_for(w, "grant")
        assert w.call("POST", "/grant", {})[0] == 200
        until = time.monotonic() + 300
        while w.call("GET", "/state")[1]["phase"] == "grant" and time.monotonic() < until:
            time.sleep(0.01)
        if w.bridge.step == 2 or not w.thread.is_alive():
            break
    w.join()
    assert w.bridge.step == 2
