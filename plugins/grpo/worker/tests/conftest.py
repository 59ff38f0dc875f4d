"""A tiny model on disk, a trajectory server, and runs of the worker inside this process."""

import dataclasses
import json
import threading

import pytest
import torch
from recipe_sdk import Bridge, fields
from recipe_sdk.control import Command
from recipe_sdk.events import Events, plain
from recipe_sdk.testing import VOCABULARY, FakeAPI, Supervisor

from worker import config, model
from worker.replay import Replay
from worker.train import Trainer, build

from . import event_types

torch.set_num_threads(1)


def llama(path, tied):
    """A randomly initialized Llama of two layers in float64-friendly size."""
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(5)
    c = LlamaConfig(
        vocab_size=VOCABULARY, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=256, tie_word_embeddings=tied, eos_token_id=2, bos_token_id=1,
    )  # fmt: skip
    LlamaForCausalLM(c).save_pretrained(path)
    return str(path)


@pytest.fixture(scope="session")
def tiny(tmp_path_factory):
    """A model on disk."""
    return llama(tmp_path_factory.mktemp("tiny"), False)


@pytest.fixture(scope="session")
def tied(tmp_path_factory):
    """The same, with its output head tied to the embedding."""
    return llama(tmp_path_factory.mktemp("tied"), True)


@pytest.fixture(autouse=True)
def readable(monkeypatch):
    """Checks that the supervisor can decode every event of every test."""
    emit = Events.emit

    def checked(self, kind, **fields):
        event_types.check(json.loads(json.dumps(plain({"type": kind, **fields}))))
        emit(self, kind, **fields)

    monkeypatch.setattr(Events, "emit", checked)


@pytest.fixture
def api():
    """Makes trajectory servers and closes them."""
    made = []

    def make(**kwargs):
        made.append(FakeAPI(**kwargs))
        return made[-1]

    yield make
    for a in made:
        a.close()


def settings(tmp_path, model, url, /, **change):
    """A configuration for quick runs in float64."""
    base = {
        "model": {"path": model, "dtype": "float64", "device": "cpu", "gradient_checkpointing": False, "row_tokens": 64},
        "optimizer": {"learning_rate": 1e-3},
        "kl": {"coefficient": 0.0},
        "data": {"url": url, "batch_size": 8, "batch_retry_delay": 0.01, "batch_max_wait": 0.05, "batch_retry_attempts": 3,
                 "register_delay": [0.01, 0.02], "timeout": 10},
        "steps": 4, "save_every": 2, "checkpoint_dir": str(tmp_path / "checkpoints"),
        "events_file": str(tmp_path / "events.jsonl"),
    }  # fmt: skip
    return fields.merge(base, change)


class Worker:
    """A run in this process, with a supervisor."""

    def __init__(self, given):
        self.supervisor = Supervisor()
        self.config = config.from_dict({**given, "control": self.supervisor.address, "control_token": "abc"})
        self.bridge = Bridge.open(self.config, device=model.device_of(self.config), signals=False)
        self.events, self.control = self.bridge.events, self.bridge.control
        self.trainer, self.closed = None, False
        self.error = None
        self.thread = None

    @property
    def reason(self):
        return self.bridge.reason

    def load(self):
        self.trainer = Trainer(self.bridge)
        self.bridge.connect()
        self.batches = self.bridge.batches(build)
        return self

    def train_one(self):
        """One step of the loop, up to where it can be distinguished from the next."""
        self.trainer.train(next(self.batches))

    def __call__(self):
        """Load, train, close."""
        try:
            self.load()
            self.trainer.loop()
        finally:
            self.close()
        return self

    def background(self):
        """The same in a thread; join() raises what it raised."""

        def body():
            try:
                self()
            except BaseException as e:
                self.error = e

        # a test that fails leaves it waiting for its supervisor: the interpreter must not wait for it
        self.thread = threading.Thread(target=body, daemon=True)
        self.thread.start()
        return self

    def join(self):
        self.thread.join(timeout=300)
        assert not self.thread.is_alive()
        if self.error:
            raise self.error
        return self

    def call(self, name, **params):
        return self.supervisor.call(name, params)

    def answer(self, name, **result):
        """Answers a request of the worker (sync or turn) and returns its parameters."""
        return self.supervisor.answer(name, {"shared": False, "version": self.bridge.version, **result})

    def stop(self):
        """Does what SIGTERM does."""
        self.control.commands.put(Command("stop", {}))

    def read(self):
        with open(self.config.events_file, encoding="utf-8") as f:
            return [json.loads(line) for line in f]

    def metrics(self):
        return [e["metrics"] for e in self.read() if e["type"] == "metric"]

    def close(self):
        if not self.closed:
            self.closed = True
            self.bridge.close()
            self.supervisor.close()


@pytest.fixture
def make(tmp_path, tiny):
    """make(url, **settings) -> Worker."""
    made = []

    def build(url, where=None, **change):
        directory = where or tmp_path
        made.append(Worker(settings(directory, change.pop("model_path", tiny), url, **change)))
        return made[-1]

    yield build
    for w in made:
        if w.thread is None or not w.thread.is_alive():
            w.close()


def attached(s, **change):
    """A bridge on which a stepper hangs as in a run, without a trajectory API."""
    bridge = Bridge(dataclasses.replace(s.config, **change), s.ranks, Events(None), None)
    bridge._looked = True
    trainer = Trainer.__new__(Trainer)
    trainer.bridge, trainer.policy, trainer.reference = bridge, s.policy, s.reference
    trainer.stepper, trainer.optimizer, trainer.eos = s, s.optimizer, frozenset()
    trainer.proof = Replay(s.policy, s.ranks.device, None)
    trainer._attach({})
    return bridge
