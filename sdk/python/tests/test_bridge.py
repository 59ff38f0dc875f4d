"""The rules of the bridge, with a trainer that learns one number."""

import json
import pickle
import subprocess
import sys
import threading

import pytest
import torch

from recipe_sdk import Bridge, Settings, commands, ending, settings, work
from recipe_sdk.errors import CheckpointError, DataError, WorkerError
from recipe_sdk.fields import ConfigError
from recipe_sdk.testing import make_group


def configured(tmp_path, url, **change):
    return settings.from_dict({
        "model": {"path": "nowhere"}, "steps": 2, "checkpoint_dir": str(tmp_path / "checkpoints"),
        "events_file": str(tmp_path / "events.jsonl"), "threads": 1,
        "data": {"url": url, "batch_size": 8, "batch_retry_delay": 0.01, "batch_max_wait": 0.02}, **change,
    }, Settings)  # fmt: skip


def opened(tmp_path, url, **change):
    return Bridge.open(configured(tmp_path, url, **change), device=torch.device("cpu"), signals=False)


def attach(bridge, **more):
    weight = torch.zeros(3)
    bridge.attach(**{
        "named": lambda: iter([("w", weight)]), "logprobs": lambda ids, t: torch.zeros(ids.shape[1] - 1),
        "save": lambda folder: (folder / "mine").write_text("here"), **more,
    })  # fmt: skip
    return weight


def events(tmp_path):
    return [json.loads(line) for line in (tmp_path / "events.jsonl").read_text().splitlines()]


def test_environments_begin_before_the_first_batch(tmp_path, api):
    server = api()
    bridge = opened(tmp_path, server.url)
    with pytest.raises(RuntimeError, match="resume"):
        bridge.begin()
    bridge.resume()
    bridge.begin()
    assert server.acked == [0]  # it was polled, and the batch is not lost
    attach(bridge)
    bridge.begin()
    assert server.acked == [0]
    got = []
    for batch in bridge.batches():
        got.append(batch.number)
        bridge.stepped({})
    assert bridge.close() == 0 and got == [0, 1] and server.acked == [0, 1]


def test_work_is_one_life(tmp_path, api):
    def train(bridge):
        attach(bridge)
        for batch in bridge.batches():
            if batch.number == 1:
                raise RuntimeError("no second batch")
            bridge.stepped({})

    assert work(configured(tmp_path, api().url), train) == 1
    (error,) = [e for e in events(tmp_path) if e["type"] == "error"]
    assert "no second batch" in json.dumps(error)
    assert work(configured(tmp_path / "whole", api().url, steps=1), train) == 0


def test_the_state_of_a_trainer_comes_back(tmp_path, api):
    server = api()
    bridge = opened(tmp_path, server.url)
    assert bridge.resume() is None
    attach(bridge, state=lambda: {"seen": bridge.step})
    got = []
    for batch in bridge.batches():
        got.append((batch.number, batch.step, len(batch)))
        bridge.stepped({"loss/total": 1.0}, ["odd"])
    assert bridge.close() == 0 and got == [(0, 1, 8), (1, 2, 8)] and server.acked == [0, 1]
    again = opened(tmp_path, server.url, steps=3)
    found = again.resume()
    assert (found.path / "mine").read_text() == "here" and found.step == 2 and found.state["seen"] == 2
    attach(again)
    for batch in again.batches():
        assert batch.number == 2
        again.stepped({})
    assert again.close() == 0
    told = events(tmp_path)
    assert [e["message"] for e in told if e["type"] == "warning"] == ["odd"]
    metrics = [e["metrics"] for e in told if e["type"] == "metric"]
    assert all(m["sequences/count"] == 8 and "reward/mean" in m and m["time/step"] >= 0 for m in metrics)


def test_calls_in_the_wrong_order_are_refused(tmp_path, api):
    bridge = opened(tmp_path, api().url)
    with pytest.raises(RuntimeError, match="attach has not been called"):
        next(bridge.batches())
    attach(bridge)
    with pytest.raises(RuntimeError, match="no batch is being trained"):
        bridge.stepped({})
    batches = bridge.batches()
    next(batches)
    with pytest.raises(RuntimeError, match=r"call bridge.stepped\(metrics\) or bridge.skipped"):
        next(batches)
    bridge.stepped({})
    bridge.save("asked")
    bridge.close()
    later = opened(tmp_path, api().url)
    with pytest.raises(RuntimeError, match=r"call bridge.resume\(\)"):
        attach(later)
    later.close()


def test_a_missing_package_is_an_error_with_a_remedy(tmp_path, api):
    assert opened(tmp_path, api().url).close(ModuleNotFoundError("No module named 'peft'")) == 1
    told = events(tmp_path)[-1]
    assert told["code"] == "missing_package" and "peft" in told["message"] and "recipe init" in told["checks"][0]


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (WorkerError("no such layer", ["Correct it."], "model", "lora.layers"),
         {"code": "model", "message": "no such layer", "checks": ["Correct it."], "setting": "lora.layers"}),
        (WorkerError("no data", ["Look."]), {"code": "error", "message": "no data", "checks": ["Look."]}),
        (ConfigError("beta: too low", "config.beta"),
         {"code": "config", "message": "beta: too low", "checks": ["Correct it in the recipe."],
          "setting": "config.beta"}),
    ],
)  # fmt: skip
def test_what_ends_a_run_names_its_setting(tmp_path, api, error, expected):
    """Also when it has come from another rank."""
    assert opened(tmp_path, api().url).close(pickle.loads(pickle.dumps(error))) == 1
    told = events(tmp_path)[-1]
    assert {k: v for k, v in told.items() if k not in ("time", "seq", "type")} == expected


def test_a_model_that_is_no_folder_is_refused(tmp_path, api):
    with pytest.raises(WorkerError, match="there is no folder"):
        opened(tmp_path, api().url, model={"path": str(tmp_path / "nothere")})
    told = events(tmp_path)[-1]
    assert told["setting"] == "model.path" and str(tmp_path / "nothere") in told["message"] and told["checks"]


def test_adapters_without_a_layer_get_a_list_of_layers(tmp_path, api):
    config = {"model_type": "llama", "hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1,
              "num_attention_heads": 1, "vocab_size": 8}  # fmt: skip
    (tmp_path / "config.json").write_text(json.dumps(config))
    bridge = opened(tmp_path, api().url, model={"path": str(tmp_path)})
    assert bridge.close(ValueError("Target modules {'nope'} not found in the base model. Please check")) == 1
    (check,) = events(tmp_path)[-1]["checks"]
    assert check == ("The model's linear layers are down_proj, gate_proj, k_proj, o_proj, q_proj, up_proj, v_proj.")
    assert ending.linear(str(tmp_path / "nothere")) == []


def test_a_remote_rank_logs_why_it_ended(tmp_path, api, monkeypatch, capfd):
    """Loopback there is not the supervisor's; on the same machine a rank that cannot reach it says so."""
    block = configured(tmp_path, api().url, control="127.0.0.1:1", control_token="abc")
    monkeypatch.setenv("GROUP_RANK", "1")
    ending.report(ValueError("broken"), None, block, main=False)
    assert "ValueError: broken" in capfd.readouterr().err
    monkeypatch.setenv("GROUP_RANK", "0")
    with pytest.raises(WorkerError, match="cannot be reached"):
        ending.report(ValueError("broken"), None, block, main=False)


def test_a_skipped_or_refused_batch_does_not_return(tmp_path, api):
    server = api()
    bridge = opened(tmp_path, server.url, steps=1)
    attach(bridge)
    batches = bridge.batches()
    assert next(batches).number == 0
    bridge.skipped("not today", {"why": 1.0})
    assert next(batches).number == 1
    bridge.refuse()
    assert bridge.close(ValueError("broken")) == 1
    told = events(tmp_path)
    assert [(e["batch"], e["reason"]) for e in told if e["type"] == "skipped"] == [(0, "not today")]
    assert told[-1]["code"] == "internal" and "broken" in told[-1]["traceback"] and told[-1]["checks"] == []
    again = opened(tmp_path, server.url, steps=2)
    attach(again)
    numbers = []
    for batch in again.batches():
        numbers.append(batch.number)
        again.stepped({})
    again.close()
    assert numbers == [0, 2], "nothing was checkpointed, so batch 0 comes again; the refused one does not"


def test_groups_left_out_are_counted(tmp_path, api):
    def batch(k):
        bad = make_group(k + 50)
        bad["masks"][0] = bad["masks"][0][:-1]
        return [make_group(k, version=9), bad, make_group(k + 20, version=1), make_group(k + 30, n=3, version=9)]

    bridge = opened(tmp_path, api(batch=batch).url, steps=1, policy_version=9, data={
        "url": api(batch=batch).url, "max_staleness": 2, "batch_size": 8,
    })  # fmt: skip
    attach(bridge, select=lambda groups: ([g for g in groups if len(g.completions) == 4], {"groups/odd": 1.0}))
    for b in bridge.batches():
        assert len(b) == 4 and len(b.raw) == 1 and b.raw[0]["policy_version"] == 9
        bridge.stepped({})
    bridge.close()
    (m,) = [e["metrics"] for e in events(tmp_path) if e["type"] == "metric"]
    assert m["rejected_groups/shape"] == 1 and m["staleness/dropped_groups"] == 1 and m["groups/odd"] == 1


def test_overlong_sequences_can_end_the_run(tmp_path, api):
    bridge = opened(tmp_path, "http://unused", data={"url": api().url, "max_length": 3, "overlong": "error"})
    attach(bridge)
    with pytest.raises(DataError, match="max_length is 3"):
        next(bridge.batches())
    bridge.close()


def test_a_full_disk_leaves_no_checkpoint(tmp_path, api):
    bridge = opened(tmp_path, api().url)
    room = {"left": False}

    def save(folder):
        (folder / "part").write_text("x")
        if not room["left"]:
            raise OSError(28, "No space left on device")

    attach(bridge, save=save)
    next(bridge.batches())
    bridge.stepped({})
    with pytest.raises(CheckpointError, match="No space left") as e:
        bridge.save("asked")
    assert e.value.checks and bridge.events.state["phase"] != "checkpointing"
    room["left"] = True
    path = bridge.save("asked")
    assert path.endswith("step_1")
    assert [p.name for p in (tmp_path / "checkpoints").iterdir() if "step" in p.name] == ["step_1"]
    bridge.close()


def test_tied_names_are_left_out_or_written_as_copies(tmp_path, api):
    bridge = opened(tmp_path, api().url)
    w = torch.ones(2)
    names = [("embed", w), ("head", w)]
    attach(bridge, named=lambda: iter(names), tied={"head": "embed"})
    assert [n for n, _ in bridge.hooks.weights()] == ["embed"]
    assert [n for n, _ in bridge.hooks.weights(untie=True)] == ["embed", "head"]
    bridge.close()


def test_a_wrong_configuration_says_every_mistake(tmp_path):
    path = tmp_path / "config.json"
    path.write_text(json.dumps({"model": {}, "data": {"url": "u", "batch_siz": 1}, "config": 3}))
    with pytest.raises(ConfigError) as e:
        Bridge.open(path)
    assert "did you mean batch_size?" in str(e.value) and "model.path: required" in str(e.value)
    assert "config: expected an object, got 3" in str(e.value)
    path.write_text(json.dumps({"model": {"path": "m"}, "data": {"url": "u"}, "control": "0.0.0.0:1"}))
    with pytest.raises(ConfigError, match=r"0\.0\.0\.0:1 is not HOST:PORT on loopback"):
        Bridge.open(path)


def test_importing_the_package_loads_no_torch():
    code = "import sys, recipe_sdk; print(recipe_sdk.__version__, {'torch', 'numpy', 'pyarrow'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.endswith(" set()\n"), done.stdout


def test_nothing_of_a_closed_bridge_goes_on(tmp_path, api):
    before = set(threading.enumerate())
    bridge = opened(tmp_path, api().url, steps=1)
    started = set(threading.enumerate()) - before
    attach(bridge)
    for _ in bridge.batches():
        bridge.stepped({})
    bridge.close()
    assert not [t for t in started if t.is_alive() and t.name == "control"]


def test_a_paused_run_takes_no_batch(tmp_path, api, monkeypatch):
    monkeypatch.setattr("recipe_sdk.feed.HEARTBEAT", 0.05)
    bridge = opened(tmp_path, api().url)
    attach(bridge)
    bridge.connect()
    commands.carry_out(bridge, "pause", {"paused": True})
    bridge.feed.since = float("-inf")
    assert bridge.feed.decide() == ("idle", None)
    commands.carry_out(bridge, "pause", {"paused": False})
    monkeypatch.setattr("recipe_sdk.feed.HEARTBEAT", 10.0)
    kind, _ = bridge.feed.decide()
    assert kind == "batch" and bridge.feed.since > 0
    assert [e["phase"] for e in events(tmp_path) if e["type"] == "phase"][-2:] == ["paused", "waiting"]
    bridge.close()
