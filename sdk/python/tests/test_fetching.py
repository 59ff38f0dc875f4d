"""The next batch, fetched while another trains."""

import json
import threading
import time

import torch

from recipe_sdk import Bridge, Settings, settings
from recipe_sdk.testing import make_group


def opened(tmp_path, url, **change):
    given = {
        "model": {"path": "nowhere"}, "steps": 4, "checkpoint_dir": str(tmp_path / "run"),
        "events_file": str(tmp_path / "events.jsonl"), "threads": 1,
        "data": {"url": url, "batch_size": 8, "batch_retry_delay": 0.01, "batch_max_wait": 0.02}, **change,
    }  # fmt: skip
    bridge = Bridge.open(settings.from_dict(given, Settings), device=torch.device("cpu"), signals=False)
    bridge.attach(named=lambda: iter([("w", torch.zeros(3))]), save=lambda folder: None,
                  logprobs=lambda ids, t: torch.zeros(ids.shape[1] - 1))  # fmt: skip
    return bridge


def paths(server, part):
    return [path for _, path, _ in server.requests if part in path]


def until(what):
    for _ in range(1000):
        if what():
            return
        time.sleep(0.01)
    raise AssertionError("it never happened")


def fetched(bridge):
    """Waits until the next batch is stored."""
    ahead = bridge.feed.rollouts.ahead
    ahead.thread.join(10)
    assert ahead.found


def trained(tmp_path, server, **change):
    """A bridge, and its batches: the first is trained, the second was fetched meanwhile."""
    bridge = opened(tmp_path, server.url, **change)
    batches = bridge.batches()
    next(batches)
    fetched(bridge)
    bridge.stepped({})
    return bridge, batches


def test_a_fetched_batch_needs_only_acknowledgement(tmp_path, api):
    server = api()
    bridge = opened(tmp_path, server.url)
    numbers = []
    for b in bridge.batches():
        numbers.append(b.number)
        if len(numbers) < 4:
            fetched(bridge)
            assert server.acked == list(range(len(numbers))), "acknowledged before it was needed"
        bridge.stepped({})
    assert numbers == server.acked == [0, 1, 2, 3]
    assert len(paths(server, "early=true")) == 3 and server.formed == 4, "none is fetched beside the last step"
    assert len(paths(server, "/batch?")) == 4
    bridge.close()


def test_it_is_asked_for_until_it_is_there(tmp_path, api):
    server = api(limit=1)
    bridge = opened(tmp_path, server.url, steps=2)
    batches = bridge.batches()
    next(batches)
    until(lambda: len(paths(server, "early=true")) > 3)
    server.limit = 2
    fetched(bridge)
    bridge.stepped({})
    assert next(batches).number == 1
    assert not [t for t in threading.enumerate() if t.name == "next batch"]
    bridge.close()


def test_a_killed_trainer_gets_its_fetched_batch_again(tmp_path, api):
    """A kill while one trains: both are there for the next life, in their order, and none is trained twice."""
    server = api()
    first = opened(tmp_path, server.url)
    next(first.batches())
    fetched(first)
    first.close()
    second = opened(tmp_path, server.url, resume=True)
    numbers, groups = [], []
    for b in second.batches():
        numbers.append(b.number)
        groups.append(b.tokens.tolist())
        second.stepped({})
    assert numbers == [0, 1, 2, 3] and server.acked == [0, 1, 2, 3] and server.formed == 4
    want = make_group(100)["tokens"][0]
    assert groups[1][: len(want)] == want
    second.close()


def test_a_run_that_stops_gives_it_back(tmp_path, api):
    server = api()
    bridge, batches = trained(tmp_path, server)
    bridge.feed.decide = lambda last: ("stopped", None)
    assert list(batches) == []
    assert server.acked == [0] and server.back == [1] and len(paths(server, "/release")) == 1
    assert not list((tmp_path / "run" / "spool").glob("*.leased"))
    bridge.close()


def test_one_that_has_become_too_old_is_not_trained(tmp_path, api):
    """What the trainer knows before the server does: the weights that were taken make older samples useless."""
    old = lambda k: [{**make_group(100 * k + j), "policy_version": 0 if k == 1 else 5} for j in range(2)]  # noqa: E731
    server = api(batch=old)
    bridge, batches = trained(tmp_path, server, steps=2)
    server.batch = lambda k: [{**make_group(1000 + j), "policy_version": 5} for j in range(2)]
    bridge.feed.rollouts.oldest = 3
    assert (next(batches).versions == 5).all()
    assert len(paths(server, "/release")) == 1 and server.acked == [0, 1]
    bridge.close()


def test_one_whose_lease_is_gone_is_asked_for_again(tmp_path, api):
    server = api()
    bridge, batches = trained(tmp_path, server, steps=2)
    server.expire()
    assert next(batches).number == 1 and server.acked == [0, 1] and server.formed == 2
    told = [json.loads(line) for line in (tmp_path / "events.jsonl").read_text().splitlines()]
    assert [(e["batch"], e["outcome"]) for e in told if e["type"] == "lease"] == [(1, "lost")]
    bridge.close()


def test_a_broken_acknowledgement_loses_nothing(tmp_path, api):
    server = api()
    bridge, batches = trained(tmp_path, server, steps=2)
    faults = ["drop", (500, b"oops")]
    server.fault = lambda method, path, count: faults.pop() if path.endswith("/ack") and faults else None
    assert next(batches).number == 1 and not faults
    assert server.acked == [0, 1] and server.formed == 2
    bridge.close()


def test_nothing_is_fetched_ahead_without_leases(tmp_path, api):
    """run-api hands batches out for good: environments would begin earlier, with older weights."""
    server = api(leases=False)
    bridge = opened(tmp_path, server.url, steps=3)
    for _ in bridge.batches():
        assert bridge.feed.rollouts.ahead is None
        bridge.stepped({})
    assert not paths(server, "early=true") and server.formed == 3
    bridge.close()
