"""The trainer's side of weights that are sent (recipe_sdk.nccl) against the server's, between processes."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time

import pytest
import recipe_pull
import torch
from recipe_sdk import nccl, peer
from recipe_sdk.receive import connection
from test_pull import Served, Worker, in_float8, never, publish, trainer

CHILD = """
import json, sys, torch
from test_pull import trainer
from recipe_sdk import nccl
nccl.BUCKET = 1000  # several buckets, and tensors larger than one; parts of a fused layer in several
policy, shared = trainer(), nccl.Sender()
shared.deadline = 20
for line in sys.stdin:
    version, dtype = json.loads(line)
    with torch.no_grad():
        for i, p in enumerate(policy.causal.parameters()):
            p.fill_(version + i / 7)
    handles = shared.refresh(policy.causal.named_parameters, torch.device("cpu"), version, dtype, False)
    print(json.dumps(handles), flush=True)
"""


class Process:
    """A trainer in a process of its own."""

    def __init__(self):
        path = os.pathsep.join([os.path.dirname(__file__), *sys.path])
        self.child = subprocess.Popen([sys.executable, "-c", CHILD], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                      text=True, env={**os.environ, "PYTHONPATH": path})  # fmt: skip

    def publish(self, version, dtype=None):
        self.child.stdin.write(json.dumps([version, dtype]) + "\n")
        self.child.stdin.flush()
        while not (line := self.child.stdout.readline()).startswith("{"):  # messages about receivers that are gone
            assert line, "the trainer died"
        return json.loads(line)["handles"]

    def kill(self):
        self.child.kill()
        self.child.communicate()


@pytest.fixture(scope="module")
def sender():
    process = Process()
    yield process
    process.kill()


def expect(model, version, dtype=torch.float32):
    policy = trainer()
    want = {
        n: torch.full_like(p, version + i / 7).to(dtype) for i, (n, p) in enumerate(policy.causal.named_parameters())
    }
    layer = model.model.layers[1]
    names = [f"model.layers.1.self_attn.{x}_proj.weight" for x in "qkv"]
    assert torch.equal(layer.self_attn.qkv_proj.weight, torch.cat([want[n] for n in names]).float())
    assert torch.equal(model.model.norm.weight, want["model.norm.weight"].float())
    assert torch.equal(model.lm_head.weight, want["model.embed_tokens.weight"].float())
    assert torch.equal(layer.mlp.down_proj.weight, want["model.layers.1.mlp.down_proj.weight"].float())


def test_a_model_is_sent_twice_bit_for_bit(sender):
    model, other = Served(), Served()
    handles = sender.publish(1)
    assert len(handles["buckets"]) > 2 and sum(handles["buckets"]) == len(handles["tensors"])
    puller, second = recipe_pull.Puller(model, handles), recipe_pull.Puller(other, handles)
    told = puller.pull(1, never)
    assert told["path"] == "direct" and told["tensors"] == len(handles["tensors"]) and told["bytes"] > 0
    second.pull(1, never)  # a separate receiver
    expect(model, 1)
    expect(other, 1)
    group = puller.source.receiver.group
    assert sender.publish(2) == handles
    with pytest.raises(recipe_pull.Refused, match="offers version 2, wanted is version 1"):
        puller.pull(1, never)
    expect(model, 1)
    puller.pull(2, never)
    expect(model, 2)
    assert puller.source.receiver.group is group
    rounded = sender.publish(3, "bfloat16")
    assert rounded["key"] != handles["key"]
    recipe_pull.Puller(model, rounded).pull(3, never)
    expect(model, 3, torch.bfloat16)
    quantized, same = in_float8(), in_float8()
    recipe_pull.Puller(quantized, rounded).pull(3, never)
    policy = trainer()
    with torch.no_grad():
        for i, p in enumerate(policy.causal.parameters()):
            p.fill_(3 + i / 7)
    recipe_pull.Puller(same, publish(policy, dtype="bfloat16")[1]).pull(1, never)
    for arrived, copied in zip(quantized.parameters(), same.parameters(), strict=True):
        assert torch.equal(arrived.float(), copied.float()), "parts of a layer come in several buckets"


def test_the_worker_reconnects_and_uses_the_loader(sender):
    worker = Worker(Served(vocabulary=64))
    handles = sender.publish(7)
    assert worker.recipe_pull(handles["key"], "7") == {"unknown": True}
    assert "memory layout" in worker.recipe_attach(json.dumps(handles))["why"]
    assert worker.recipe_pull(handles["key"], "7")["path"] == "loader"
    assert worker.loaded == [t["name"] for t in handles["tensors"]]
    worker._recipe_attached.puller.source.receiver.connection.shutdown(2)  # a broken connection
    assert worker.recipe_pull(handles["key"], "7")["path"] == "loader"
    assert worker.recipe_facts()["machine"] in worker.recipe_facts()["reach"][0]


def test_who_has_not_the_token_gets_nothing(sender):
    handles, model = sender.publish(1), Served()
    puller = recipe_pull.Puller(model, {**handles, "token": "guessed"})
    with pytest.raises(recipe_pull.Refused, match="the token is not this trainer's"):
        puller.pull(1, never)
    puller = recipe_pull.Puller(model, handles, device="meta")
    with pytest.raises(recipe_pull.Refused, match="cpu device, the receiver's on meta"):
        puller.pull(1, never)
    assert all((p == 0).all() for p in model.parameters())


def test_another_model_is_refused_before_sending(sender):
    handles, model = sender.publish(1), Served()
    handles["tensors"] = [t for t in handles["tensors"] if "layers.1.mlp" not in t["name"]]
    with pytest.raises(recipe_pull.Refused, match="no tensor for the server's model.layers.1.mlp"):
        recipe_pull.Puller(model, handles)
    assert all((p == 0).all() for p in model.parameters())


LEAVER = """
import sys, torch
from test_pull import trainer
from recipe_sdk import nccl
from worker import __main__
nccl.Sender().refresh(trainer().causal.named_parameters, torch.device("cpu"), 1, None, False)
import atexit
atexit.register(print, "taken down", flush=True)
print("left", end="")
__main__.leave(3)
"""


def test_a_trainer_that_sent_weights_ends_cleanly():
    path = os.pathsep.join([os.path.dirname(__file__), *sys.path])
    done = subprocess.run([sys.executable, "-c", LEAVER], stdout=subprocess.PIPE, text=True, timeout=600, check=False,
                          env={**os.environ, "PYTHONPATH": path})  # fmt: skip
    assert (done.returncode, done.stdout) == (3, "left")


TAKER = """
import json, sys, time
from recipe_sdk.receive import connection
handles = json.loads(sys.stdin.readline())
receiver = connection.Receiver(handles)
with receiver.begin(handles["key"], 1) as tensors:
    next(tensors)
    print("one", flush=True)
    time.sleep(600)
"""


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP])
def test_a_dead_or_hung_receiver_holds_nobody_up(sender, how):
    handles = sender.publish(1)
    path = os.pathsep.join(sys.path)
    taker = subprocess.Popen([sys.executable, "-c", TAKER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                             env={**os.environ, "PYTHONPATH": path})  # fmt: skip
    try:
        taker.stdin.write(json.dumps(handles) + "\n")
        taker.stdin.flush()
        assert taker.stdout.readline() == "one\n"
        taker.send_signal(how)
        model = Served()
        recipe_pull.Puller(model, handles).pull(1, never)
        expect(model, 1)
        again = sender.publish(2)
        puller = recipe_pull.Puller(model, again)
        puller.pull(2, never)
        expect(model, 2)
    finally:
        taker.kill()
        taker.communicate()


def test_a_dead_trainers_successor_is_received(sender):
    first = Process()
    handles, model = first.publish(1), Served()
    puller = recipe_pull.Puller(model, handles)
    own = f"rank 0 on {socket.gethostname()}"
    with (
        pytest.raises(RuntimeError, match=f"to {own}, did not come"),
        puller.source.receiver.begin(handles["key"], 1) as tensors,
    ):
        next(tensors)
        first.kill()
        for _ in tensors:
            pass
    begun = time.monotonic()
    with pytest.raises(
        recipe_pull.Refused,
        match=f"{own} cannot receive weights from the trainer at 127.0.0.1:{handles['port']}",
    ):
        puller.pull(1, never)
    assert time.monotonic() - begun < handles["deadline"]
    recipe_pull.Puller(model, sender.publish(5)).pull(5, never)
    expect(model, 5)


def test_a_receiver_that_never_joins_is_given_up(monkeypatch):
    shared = nccl.Sender()
    shared.deadline = 1
    handles = shared.refresh(trainer().causal.named_parameters, torch.device("cpu"), 1, None, False)["handles"]
    try:
        monkeypatch.setattr(connection.Receiver, "_group", lambda *_: time.sleep(5))
        puller = recipe_pull.Puller(Served(), handles)
        with pytest.raises(recipe_pull.Refused, match="within 1 s|went away before the trainer's part of the group"):
            puller.pull(1, never)
        monkeypatch.undo()
        model = Served()
        recipe_pull.Puller(model, handles).pull(1, never)
        assert torch.equal(model.model.norm.weight, trainer().causal.model.norm.weight)
    finally:
        shared.close()
    with pytest.raises(recipe_pull.Refused):
        recipe_pull.Puller(Served(), handles).pull(1, never)


@pytest.mark.parametrize("error", [ConnectionResetError("the connection is gone"), peer.StrangerError("a stranger")])
def test_a_refused_peer_is_named(monkeypatch, sender, error):
    handles = sender.publish(1)

    def refuse(_):
        raise error

    monkeypatch.setattr(peer, "check", refuse)
    with pytest.raises(recipe_pull.Refused, match=f"cannot receive weights from .*: {error}"):
        recipe_pull.Puller(Served(), handles).pull(1, never)


def test_large_tensors_are_sent_without_a_copy(monkeypatch):
    monkeypatch.setattr(nccl, "BUCKET", 1000)
    tensors = [torch.arange(n, dtype=torch.float32) + n for n in (100, 33, 400, 70, 80, 120)]
    counts = nccl.buckets([4 * len(t) for t in tensors])
    assert counts == [2, 1, 2, 1]
    offer = nccl.Offer("key", 1, tuple(tensors), tuple(counts))
    packer, at = nccl.Packer(torch.device("cpu")), set()
    for _ in range(2):  # versions
        rest = iter(tensors)
        for bucket, count in zip(packer.buckets(offer), counts, strict=True):
            parts, place = [next(rest) for _ in range(count)], 0
            for part in parts:
                assert torch.equal(bucket[place : place + 4 * len(part)].view(torch.float32), part)
                place += -(-4 * len(part) // 64) * 64
            if count == 1:
                assert bucket.data_ptr() == parts[0].data_ptr()
            else:
                at.add(bucket.data_ptr())
    assert at == {packer.memory.data_ptr()} and packer.memory.numel() == 640
