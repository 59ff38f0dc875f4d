"""Settings take effect: supervised losses with weights, where the reference lives, how long a request may take."""

import socket
import threading

import pytest
import torch
from recipe_sdk import api, errors
from recipe_sdk.groups import ReadOptions, read_group
from recipe_sdk.testing import VOCABULARY, make_group
from transformers import AutoModelForCausalLM

from worker import batch as batches
from worker import config, model
from worker.metrics import Clock

from .conftest import settings
from .test_model import stepper

CPU = torch.device("cpu")


@pytest.mark.parametrize("name", ["weighted_sft", "advantage_weighted_sft", "sft"])
def test_cross_entropy_is_shifted_and_normalized(tmp_path, tiny, name):
    """sum of CE_t A_t M_t over the sum of M, each label predicted by the token before it: against plain transformers."""
    raw = [make_group(k) for k in range(3)]
    g = torch.Generator().manual_seed(1)
    for group in raw:
        group["advantages"] = [torch.rand(len(t), generator=g, dtype=torch.float64).tolist() for t in group["tokens"]]
    b = batches.build([read_group(group, ReadOptions()) for group in raw])
    got = stepper(tmp_path, tiny, loss={"name": name}, kl={"coefficient": 0.0}).train(b, 0, Clock(CPU))
    plain = AutoModelForCausalLM.from_pretrained(tiny, dtype=torch.float64).eval()
    total, trained = 0.0, 0
    for group in raw:
        for tokens, masks, weights in zip(group["tokens"], group["masks"], group["advantages"], strict=True):
            with torch.no_grad():
                lp = plain(torch.tensor([tokens])).logits[0].log_softmax(-1)
            for t in range(1, len(tokens)):
                if masks[t] != -100:
                    total -= float(lp[t - 1, tokens[t]]) * (1.0 if name == "sft" else weights[t])
                    trained += 1
    assert got["loss/total"] == pytest.approx(total / trained, abs=1e-9)


@pytest.mark.parametrize("offload", [True, False])
def test_the_reference_lives_where_its_setting_says(tmp_path, tiny, monkeypatch, offload):
    """reference.offload: on the CPU except while it is used; without it on the device all the time."""
    policy = stepper(tmp_path, tiny).policy
    c = config.from_dict(
        settings(tmp_path, tiny, "http://unused", kl={"coefficient": 0.1}, reference={"offload": offload})
    )
    read, loaded, moves = model._read, [], []

    def on_cpu(path, c, device, hold):
        assert device.type == "cuda", "its kernel is chosen for where it computes"
        loaded.append(hold.type)
        return read(path, c, CPU)

    monkeypatch.setattr(model, "_read", on_cpu)
    monkeypatch.setattr(model.Policy, "to", lambda self, device: moves.append(torch.device(device).type) or self)
    r = model.Reference(c, policy, torch.device("cuda"))
    assert loaded == (["cpu"] if offload else ["cuda"])
    with r.ready():
        assert moves == (["cuda"] if offload else [])
    assert moves == (["cuda", "cpu"] if offload else [])


def test_a_teacher_has_its_head_and_knows_the_tokens(tmp_path, tiny):
    from transformers import Gemma2Config, Gemma2ForCausalLM

    def teacher(vocabulary):
        torch.manual_seed(1)
        shape = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 1, "num_attention_heads": 4,
                 "num_key_value_heads": 2, "head_dim": 8, "query_pre_attn_scalar": 8}  # fmt: skip
        own = Gemma2ForCausalLM(Gemma2Config(
            vocab_size=vocabulary, final_logit_softcapping=0.5, attn_logit_softcapping=None, **shape)).double()  # fmt: skip
        own.save_pretrained(tmp_path / str(vocabulary))
        return own.eval(), str(tmp_path / str(vocabulary))

    own, path = teacher(VOCABULARY)
    s = stepper(tmp_path, tiny, loss={"name": "distill"}, reference={"source": "copy", "path": path})
    b = batches.build([read_group(make_group(1), ReadOptions())])
    got = s.reference_scores(b)
    with torch.no_grad():
        logits = own(b.tokens[0][None]).logits[0].log_softmax(-1)
    t = int(b.positions[0][0])
    assert float(got[0]) == pytest.approx(float(logits[t - 1, b.tokens[0][t]]), abs=1e-6)
    with pytest.raises(model.ModelError, match="knows 40 tokens, the policy 61"):
        stepper(tmp_path, tiny, loss={"name": "distill"}, reference={"source": "copy", "path": teacher(40)[1]})


@pytest.mark.parametrize("offload", [True, False])
def test_a_sharded_reference_obeys_its_setting(tmp_path, tiny, monkeypatch, offload):
    policy = stepper(tmp_path, tiny).policy
    c = config.from_dict(
        settings(tmp_path, tiny, "http://unused", kl={"coefficient": 0.1}, reference={"offload": offload})
    )
    told = []
    monkeypatch.setattr(model, "shard", lambda policy, c, mesh, offload=False: told.append(offload))
    model.Reference(c, policy, CPU, mesh=object())
    assert told == [offload]


@pytest.mark.parametrize("connecting", [True, False])
def test_a_request_ends_when_its_time_is_over(connecting):
    """data.timeout and data.connect_timeout reach the socket: the error names a server that accepts and does not answer."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        stop = threading.Event()

        def accept():
            kept = []
            server.settimeout(0.1)
            while not stop.is_set():
                try:
                    kept.append(server.accept()[0])
                except TimeoutError:
                    continue
            for c in kept:
                c.close()

        thread = threading.Thread(target=accept)
        thread.start()
        try:
            client = api.Client(f"http://127.0.0.1:{server.getsockname()[1]}", None, 3600 if connecting else 0.2)
            with pytest.raises(errors.AtroposAPIError) as caught:
                client.call("GET", "/status", timeout=0.2 if connecting else None)
        finally:
            stop.set()
            thread.join()
    assert caught.value.kind == "timeout" and "no answer in time" in str(caught.value)
