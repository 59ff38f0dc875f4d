"""A full disk: scheduled writes wait for room, requested ones are refused, and no incomplete file is left."""

import errno
import json
import os
import pickle
import subprocess
import threading
import time

import pytest
import torch

from recipe_sdk import Bridge, Settings, commands, feed, publish, settings, weights
from recipe_sdk.control import Command, Control
from recipe_sdk.errors import DiskFull, Unwritable


@pytest.fixture
def disk(tmp_path):
    """A folder on a disk of its own, of 4 MiB."""
    path = tmp_path / "disk"
    path.mkdir()
    made = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", path], capture_output=True, text=True)
    if made.returncode:
        pytest.skip(f"needs a small disk of its own, and mounting one is refused: {made.stderr.strip()}")
    yield path
    subprocess.run(["umount", "-l", path], check=True)


def fill(disk):
    with open(disk / "filler", "wb", buffering=0) as f:
        try:
            while True:
                f.write(bytes(4096))
        except OSError:
            pass


def opened(tmp_path, url, folder, save, **change):
    given = {
        "model": {"path": "nowhere"}, "steps": 3, "save_every": 1, "checkpoint_dir": str(folder),
        "events_file": str(tmp_path / "events.jsonl"), "threads": 1,
        "data": {"url": url, "batch_size": 8, "batch_retry_delay": 0.01, "batch_max_wait": 0.02}, **change,
    }  # fmt: skip
    bridge = Bridge.open(settings.from_dict(given, Settings), device=torch.device("cpu"), signals=False)
    bridge.attach(named=lambda: iter([("w", torch.zeros(3))]), save=save,
                  logprobs=lambda ids, t: torch.zeros(ids.shape[1] - 1))  # fmt: skip
    return bridge


def events(tmp_path, kind):
    lines = (tmp_path / "events.jsonl").read_text().splitlines()
    return [e for e in map(json.loads, lines) if e["type"] == kind]


def once(tmp_path, phase):
    """Waits until a phase was reported."""
    for _ in range(2000):
        if any(e["phase"] == phase for e in events(tmp_path, "phase")):
            return
        time.sleep(0.01)
    raise AssertionError(f"no phase {phase}: {events(tmp_path, 'phase')}")


def later(action, *args):
    thread = threading.Thread(target=action, args=args)
    thread.start()
    return thread


@pytest.mark.parametrize("write", [
    lambda folder: torch.save(torch.zeros(100_000), folder / "state.pt"),
    lambda folder: weights.save_tensors(iter([("w", torch.zeros(100_000))]), folder, None),
    lambda folder: (folder / "state.json").write_text("x" * 100_000),
])  # fmt: skip
# docs: survival.md the disk is full (no room, or the user's quota)
def test_a_checkpoint_that_is_due_waits_for_room(tmp_path, disk, api, write):
    server = api()
    folder = disk / "checkpoints"
    bridge = opened(tmp_path, server.url, folder, write)

    def room():
        once(tmp_path, "no_room")
        assert not [p.name for p in folder.iterdir() if "step" in p.name], "nothing half-written while it waits"
        (disk / "filler").unlink()

    steps = []
    for k, batch in enumerate(bridge.batches()):
        if k == 0:
            fill(disk)
            waiting = later(room)
        steps.append(batch.step)
        bridge.stepped({})
    waiting.join()
    assert bridge.close() == 0 and steps == [1, 2, 3]
    assert sorted(p.name for p in folder.iterdir() if "step" in p.name) == ["step_2", "step_3"]
    (told,) = [e for e in events(tmp_path, "phase") if e["phase"] == "no_room"]
    assert str(folder) in told["for_what"] and "could not be written" in told["for_what"]


# docs: survival.md a checkpoint that is due cannot be written for another reason: rights, a read-only file …
@pytest.mark.parametrize("number", [errno.EACCES, errno.EROFS, errno.EIO, errno.ENOTDIR, errno.EDQUOT])
def test_a_checkpoint_that_a_disk_refuses_waits(tmp_path, api, monkeypatch, number):
    monkeypatch.setattr(feed, "RETRY", 0.1)
    tries = []

    def write(folder):
        tries.append(folder)
        if len(tries) <= 2:
            raise OSError(number, os.strerror(number))

    bridge = opened(tmp_path, api().url, tmp_path / "checkpoints", write)
    steps = []
    for batch in bridge.batches():
        steps.append(batch.step)
        bridge.stepped({})
    assert bridge.close() == 0 and steps == [1, 2, 3], "no step is thrown away"
    told = [e for e in events(tmp_path, "phase") if e["phase"] == "no_room"]
    assert len(told) == 2 and os.strerror(number) in told[0]["for_what"]


# docs: survival.md a checkpoint that is due cannot be written for another reason: rights, a read-only file …
def test_a_file_in_the_checkpoints_way_is_awaited(tmp_path, api, monkeypatch):
    monkeypatch.setattr(feed, "RETRY", 0.1)
    (tmp_path / "real").mkdir()
    (tmp_path / "file").write_text("a file")
    folder = tmp_path / "disk" / "checkpoints"

    def becomes(what):
        (tmp_path / "new").symlink_to(what)
        os.replace(tmp_path / "new", tmp_path / "disk")

    def mend():
        once(tmp_path, "no_room")
        becomes("real")

    becomes("real")
    bridge = opened(tmp_path, api().url, folder, lambda f: (f / "x").write_text("x"), steps=2)
    for k, _ in enumerate(bridge.batches()):
        if k == 0:
            becomes("file")
            waiting = later(mend)
        bridge.stepped({})
    waiting.join()
    assert bridge.close() == 0 and (folder / "step_2" / "COMPLETE").exists()


def test_errors_of_disks_travel_between_ranks():
    for e in (DiskFull("full", "/c"), Unwritable("no rights", "/c")):
        back = pickle.loads(pickle.dumps(e))
        assert type(back) is type(e) and back.folder == "/c" and back.record() == e.record()


# docs: survival.md the disk is full (no room, or the user's quota)
def test_a_stop_ends_a_checkpoints_wait_for_room(tmp_path, disk, api):
    server = api()
    bridge = opened(tmp_path, server.url, disk / "checkpoints", lambda f: (f / "x").write_text("x" * 100_000))
    bridge.control = Control()

    def stop():
        once(tmp_path, "no_room")
        bridge.control.commands.put(Command("stop", {}))

    batches = bridge.batches()
    next(batches)
    fill(disk)
    waiting = later(stop)
    began = time.monotonic()
    bridge.stepped({})
    with pytest.raises(DiskFull, match="step_1 could not be written"):
        next(batches)
    waiting.join()
    assert time.monotonic() - began < 5 and bridge.close() == 0
    assert "was not saved, because the run stops" in events(tmp_path, "warning")[-1]["message"]


def test_commands_run_while_a_checkpoint_waits(tmp_path, disk, api):
    server = api()
    bridge = opened(tmp_path, server.url, disk / "checkpoints", lambda f: (f / "x").write_text("x" * 100_000), steps=1)
    bridge.control = Control()
    asked = Command("checkpoint", {})

    def ask():
        once(tmp_path, "no_room")
        bridge.control.commands.put(asked)
        assert isinstance(asked.answer.exception(10), DiskFull), "what a person asks for is refused at once"
        (disk / "filler").unlink()

    for _ in bridge.batches():
        fill(disk)
        waiting = later(ask)
        bridge.stepped({})
    waiting.join()
    assert bridge.close() == 0 and (disk / "checkpoints" / "step_1" / "COMPLETE").exists()


# docs: survival.md the disk is full (no room, or the user's quota)
def test_a_batch_waits_for_room(tmp_path, disk, api):
    server = api(early=False)
    bridge = opened(tmp_path, server.url, disk / "checkpoints", lambda f: None)
    batches = bridge.batches()
    next(batches)
    bridge.stepped({})
    fill(disk)

    def room():
        once(tmp_path, "no_room")
        assert server.acked == [0] and not list((disk / "checkpoints" / "spool").glob("*.tmp"))
        (disk / "filler").unlink()

    waiting = later(room)
    assert next(batches).number == 1 and server.acked == [0, 1]
    waiting.join()
    bridge.stepped({})
    bridge.close()


# docs: survival.md the disk is full (no room, or the user's quota)
def test_weights_without_room_can_be_requested_again(tmp_path, disk, api, tiny):
    bridge = opened(tmp_path, api().url, tmp_path / "checkpoints", lambda f: None, model={"path": tiny})
    bridge.connect()
    bridge.feed.sync = (0.0, 1)
    body = {"version": 1, "transport": "reload", "dir": str(disk / "v1")}
    fill(disk)
    command = Command("publish", body)
    bridge.feed.waiting = command
    commands.carry_out(bridge, "publish", body)
    e = command.answer.exception()
    assert isinstance(e, DiskFull) and e.record()["code"] == "disk_full"
    assert [p.name for p in disk.iterdir()] == ["filler"], "no half of it"
    assert time.monotonic() - bridge.feed.sync[0] < 60, "the time to wait for inference begins anew"
    (disk / "filler").unlink()
    publish.publish(bridge, body)
    assert (disk / "v1" / "model.safetensors").exists()
    bridge.close()


def test_a_quota_that_shows_nowhere_is_tried_again(tmp_path, api, monkeypatch):
    monkeypatch.setattr(feed, "RETRY", 0.1)
    tries = []

    def save(folder):
        tries.append(1)
        if len(tries) < 3:
            raise OSError(122, "Disk quota exceeded")

    bridge = opened(tmp_path, api().url, tmp_path / "checkpoints", save, steps=1)
    for _ in bridge.batches():
        bridge.stepped({})
    assert bridge.close() == 0 and len(tries) == 3
