"""The next step is calculated while inference loads the weights of the one before, which stay as they are until then."""

import json
import time

import pytest
import torch
from recipe_sdk import errors
from recipe_sdk.columns import Encoded
from recipe_sdk.control import Command
from recipe_sdk.spool import Spool
from recipe_sdk.testing import make_group

IDS = [3, 14, 15, 9, 26, 5]


def until(what):
    """Waits for it."""
    end = time.monotonic() + 120
    while not what():
        assert time.monotonic() < end
        time.sleep(0.01)


def entered(w):
    """Its phases so far, with the number of a batch where it trains one."""
    return [(e["phase"], e.get("batch")) for e in w.read() if e["type"] == "phase"]


def trained(w, batch):
    """Waits until a batch has had its passes and only inference is waited for."""

    def there():
        phases = entered(w)
        return ("training", batch) in phases and phases[-1][0] == "settling"

    until(there)


def publish(w, version, tmp_path):
    """What a sync block does before inference loads; the trainer's log-probabilities."""
    assert w.call("publish", version=version, transport="reload", dir=str(tmp_path / "served"))[0] == "ok"
    status, proof = w.call("logprobs", token_ids=IDS)
    assert status == "ok"
    return torch.tensor(proof["logprobs"], dtype=torch.float64)


def settling(make, api, tmp_path, steps):
    """A run that has calculated its second step and waits for inference to serve the weights of the first."""
    w = make(api().url, steps=steps, wait_for_sync=True).background()
    w.answer("turn")
    w.supervisor.wanted("sync")
    publish(w, 1, tmp_path)
    assert w.call("taken", version=1)[0] == "ok"
    trained(w, 1)
    return w


def test_the_next_step_runs_while_inference_loads(make, api, tmp_path):
    from safetensors.torch import load_file

    w = make(api().url, steps=3, wait_for_sync=True).background()
    w.answer("turn")
    assert w.supervisor.wanted("sync") == {"step": 1, "ahead": True}
    before = publish(w, 1, tmp_path)
    files = load_file(tmp_path / "served" / "model.safetensors")
    assert w.bridge.version == 0
    assert w.call("taken", version=1)[0] == "ok"
    trained(w, 1)
    assert (w.bridge.step, w.bridge.version) == (1, 1)
    assert torch.equal(publish(w, 1, tmp_path), before), "a sync block that begins again finds the same weights"
    again = load_file(tmp_path / "served" / "model.safetensors")
    assert all(torch.equal(again[k], v) for k, v in files.items())
    assert w.call("taken", version=1)[0] == "ok" and w.bridge.step == 1
    w.answer("sync", version=1)
    assert w.supervisor.wanted("sync")["step"] == 2
    assert not torch.allclose(publish(w, 2, tmp_path), before, atol=1e-6), "the step was made then"
    w.answer("sync", version=2)  # without going ahead
    assert w.supervisor.wanted("sync")["step"] == 3
    publish(w, 3, tmp_path)
    assert w.call("taken", version=3)[0] == "ok"
    until(lambda: w.events.snapshot()["policy_version"] == 3)
    w.thread.join(timeout=0.3)
    assert w.thread.is_alive() and ("training", 3) not in entered(w), "only the last step's weights are waited for"
    w.answer("sync", version=3)
    w.join()
    assert w.reason == "completed" and w.bridge.version == 3
    waits = [m["time/sync"] for m in w.metrics()]
    assert len(waits) == 3 and waits[0] == 0 and waits[1] > 0 and waits[2] > 0


def test_the_same_is_learned_as_without_going_ahead(make, api, tmp_path):
    found = {}
    for ahead in (False, True):
        (where := tmp_path / str(ahead)).mkdir()
        w = make(api().url, where, steps=3, wait_for_sync=True).background()
        w.answer("turn")
        for step in (1, 2, 3):
            assert w.supervisor.wanted("sync")["step"] == step
            if ahead:
                publish(w, step, tmp_path)
                assert w.call("taken", version=step)[0] == "ok"
                if step < 3:
                    trained(w, step)
            w.answer("sync", version=step)
        w.join()
        found[ahead] = [(m["loss/total"], m["grad_norm"], m["staleness/max"]) for m in w.metrics()]
    assert found[True] == found[False]


def test_other_commands_wait_for_the_step(make, api, tmp_path):
    w = settling(make, api, tmp_path, steps=2)
    command = Command("checkpoint", {})
    w.control.commands.put(command)
    time.sleep(0.1)
    assert not command.answer.done()
    w.answer("sync", version=1)
    assert command.answer.result(timeout=300)["step"] == 2
    w.answer("sync", version=2)
    w.join()


def test_a_stop_does_not_wait_for_inference(make, api, tmp_path):
    w = settling(make, api, tmp_path, steps=5)
    w.stop()
    w.join()
    assert w.reason == "stopped" and w.events.snapshot()["checkpoint"].endswith("step_2")


def test_weights_refused_late_end_the_run_unchanged(make, api, tmp_path):
    w = settling(make, api, tmp_path, steps=5)
    connection, number, _ = w.supervisor.asked["sync"].get(timeout=300)
    w.supervisor._send(connection, {"id": number, "error": {"code": -32603, "message": "no replica took them"}})
    with pytest.raises(errors.WorkerError, match="no replica took them"):
        w.join()
    assert w.bridge.step == 1


def test_the_wait_before_weights_change_has_a_deadline(make, api, tmp_path):
    w = make(api().url, steps=5, wait_for_sync=True, sync_timeout=1.5).background()
    w.answer("turn")
    w.supervisor.wanted("sync")
    w.call("taken", version=1)
    with pytest.raises(errors.SyncTimeout, match="did not serve them"):
        w.join()
    assert w.bridge.step == 1


def test_groups_that_become_stale_are_left_out(make, api, tmp_path):
    def batch(k):
        return [make_group(2 * k, version=k), make_group(2 * k + 1, version=0)]

    w = make(api(batch=batch).url, steps=4, wait_for_sync=True, policy_version=1).background()
    w.answer("turn")
    for step in (1, 2, 3):
        assert w.supervisor.wanted("sync")["step"] == step
        if step < 3:
            w.call("taken", version=step + 1, **({"max_staleness": 2} if step == 2 else {}))
            trained(w, step)
        w.answer("sync", version=step + 1)
    w.answer("sync", version=5)
    w.join()
    assert [m["staleness/dropped_groups"] for m in w.metrics()] == [0, 0, 1, 0], "the limit ends with the publication"


def test_a_batch_is_the_same_when_it_is_trained_again(make, api, tmp_path):
    """After a crash the version is higher, and nothing is too old that was not before."""

    def batch(k):
        return [make_group(2 * k, version=k), make_group(2 * k + 1, version=0)]

    w = make(api(batch=batch).url, steps=3, wait_for_sync=True, policy_version=1).background()
    w.answer("turn")
    w.answer("sync", version=2)
    w.supervisor.wanted("sync")
    w.call("taken", version=3, max_staleness=2)
    trained(w, 2)
    spool = Spool(tmp_path / "checkpoints" / "spool", -1)
    stored = [spool.get(k) for k in range(3)]
    assert [x and x[1] for x in stored] == [None, None, 1], "the first is covered by the checkpoint of step 2"
    w.answer("sync", version=3)
    w.answer("sync", version=4)
    w.join()
    assert [m["staleness/dropped_groups"] for m in w.metrics()] == [0, 0, 1]

    again = Spool(tmp_path / "again" / "checkpoints" / "spool", -1)
    for k, (groups, oldest) in enumerate([([make_group(0, version=1), make_group(1, version=0)], 1), (batch(1), None)]):
        again.put(k, None, Encoded("json", json.dumps({"batch": groups}).encode()), oldest)
        again.acked(k)
    w = make(api().url, tmp_path / "again", steps=2, policy_version=40)()
    assert [(m["staleness/dropped_groups"], m["groups/count"]) for m in w.metrics()] == [(1, 1), (0, 2)]


def test_a_trainer_that_breaks_its_promise_is_told(make, api, monkeypatch):
    w = make(api().url, steps=2, wait_for_sync=True).background()
    w.answer("turn")
    w.supervisor.wanted("sync")
    w.trainer.stepper.settle = w.bridge.settle = lambda: None
    w.call("taken", version=1)
    with pytest.raises(RuntimeError, match=r"promises bridge.settle\(\) before weights change"):
        w.join()
