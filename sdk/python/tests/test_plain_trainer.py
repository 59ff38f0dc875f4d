"""A trainer of sixty lines in a whole run: it learns, publishes, is killed and continues, with the real API."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from recipe_sdk.checkpoint import complete, read_state
from recipe_sdk.testing import Supervisor, make_group

TRAINER = Path(__file__).with_name("plain_trainer.py")
SOURCE = Path(__file__).resolve().parents[1] / "src"
LIMIT = 600.0  # seconds; a busy machine is slow


class Run:
    """The trainer as a process, with this test as its supervisor."""

    def __init__(self, where, given):
        self.where = where
        self.supervisor = Supervisor()
        given = {**given, "control": self.supervisor.address, "control_token": "abc"}
        path = where / "config.json"
        path.write_text(json.dumps(given))
        env = {**os.environ, "PYTHONPATH": str(SOURCE), "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
        self.log = open(where / "log", "ab")
        self.process = subprocess.Popen(
            [sys.executable, TRAINER, "--config", path], env=env, stdout=self.log, stderr=self.log
        )

    def until(self, what):
        """The first value that is not None, while the trainer runs."""
        end = time.monotonic() + LIMIT
        while time.monotonic() < end:
            if (found := what()) is not None:
                return found
            assert self.process.poll() is None, (self.where / "log").read_text()
            time.sleep(0.05)
        raise AssertionError(f"nothing within {LIMIT:g} s: {(self.where / 'log').read_text()}")

    def call(self, name, **params):
        status, answer = self.supervisor.call(name, params)
        assert status == "ok", answer
        return answer

    def offered(self, step):
        """Waits until the weights of a step are offered."""
        self.until(lambda: None if self.supervisor.asked["sync"].empty() else True)
        assert self.supervisor.wanted("sync")["step"] == step

    def synced(self, version):
        """Reports that inference serves a version, and that nobody shares its device."""
        self.supervisor.answer("sync", {"version": version, "shared": False})

    def phase(self):
        """The newest event."""
        return next((e["phase"] for e in reversed(self.supervisor.events) if e["type"] == "phase"), None)

    def close(self):
        self.process.kill()
        self.process.wait()
        self.log.close()
        self.supervisor.close()


@pytest.fixture
def start(tmp_path, tiny, server):
    """start(**settings) starts the trainer."""
    made = []

    def build(**change):
        given = {
            "model": {"path": tiny}, "steps": 3, "save_every": 1, "wait_for_sync": True,
            "data": {"url": server.url, "batch_size": 8, "batch_retry_delay": 0.05, "batch_max_wait": 0.1},
            "config": {"learning_rate": 0.01}, "checkpoint_dir": str(tmp_path / "checkpoints"),
            "events_file": str(tmp_path / "events.jsonl"), **change,
        }  # fmt: skip
        made.append(Run(tmp_path, given))
        return made[-1]

    yield build
    for run in made:
        run.close()


def served(path, ids):
    """Log-probabilities that an inference server would give from published weights."""
    from transformers import AutoModelForCausalLM

    with torch.no_grad():
        logits = AutoModelForCausalLM.from_pretrained(path).float()(torch.tensor([ids])).logits[0, :-1]
    return logits.log_softmax(-1).gather(-1, torch.tensor(ids[1:])[:, None]).squeeze(-1)


def test_it_trains_publishes_and_resumes(start, server, tmp_path, tiny):
    ids = [3, 14, 15, 9, 26, 5]

    def publish(run, version):
        """What a sync block does: publish, verify, acknowledge."""
        to = str(tmp_path / f"v{version}")
        answer = run.call("publish", version=version, transport="reload", dir=to)
        assert answer["rounded"] is False and answer["dtype"] == "float32"
        expected = run.call("logprobs", token_ids=ids)["logprobs"]
        assert torch.allclose(served(to, ids), torch.tensor(expected), atol=1e-4)
        run.synced(version)
        return torch.tensor(expected)

    first = start()
    first.until(lambda: True if first.phase() == "waiting" else None)
    for k in range(6):  # two groups of four make a batch of eight
        server.call("POST", "/scored_data", make_group(k))
    before = served(tiny, ids)
    first.supervisor.answer("turn", {"version": 0, "shared": False})
    first.offered(1)
    (state,) = [e for e in first.supervisor.events if e["type"] == "metric"]
    assert state["metrics"]["groups/count"] == 2 and state["metrics"]["grad_norm"] > 0
    one = publish(first, 1)
    assert not torch.allclose(one, before, atol=1e-3), "a step of the optimizer changes the policy"
    first.offered(2)
    first.close()  # SIGKILL: step 2 has its checkpoint, its weights were never published

    second = start()
    second.offered(2)  # the served version is unknown: first inference gets these weights
    two = publish(second, 2)
    assert not torch.allclose(two, one, atol=1e-4)
    second.offered(3)
    publish(second, 3)
    assert second.process.wait(LIMIT) == 0, (tmp_path / "log").read_text()
    assert [p.name for p in complete(tmp_path / "checkpoints")] == ["step_2", "step_3"]
    last = read_state(tmp_path / "checkpoints" / "step_3")
    assert (last["step"], last["policy_version"]) == (3, 3) and last["cursor"] == 2
    events = [json.loads(line) for line in (tmp_path / "events.jsonl").read_text().splitlines()]
    assert [e["step"] for e in events if e["type"] == "metric"] == [1, 2, 3]
    assert [e["batch"] for e in events if e["type"] == "metric"] == [0, 1, 2], "no batch is lost or trained twice"
    assert any(e["type"] == "resumed" and e["step"] == 2 for e in events)


def test_what_ends_it_is_told_with_a_remedy(start, tmp_path):
    run = start(data={"url": "http://127.0.0.1:9", "register_attempts": 1, "batch_size": 8})
    assert run.process.wait(LIMIT) == 1
    (error,) = [json.loads(line) for line in (tmp_path / "events.jsonl").read_text().splitlines() if '"error"' in line]
    assert error["code"] == "trajectory_api.refused" and len(error["checks"]) == 3
