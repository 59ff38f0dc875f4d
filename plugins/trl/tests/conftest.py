"""A tiny model with a tokenizer, a trajectory server, and runs of the trainer on the CPU with the real TRL."""

import contextlib
import ipaddress
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
import torch
from recipe_sdk import Bridge, settings
from recipe_sdk.testing import VOCABULARY, FakeAPI, make_group
from recipe_sdk.trl import TRLSettings

from recipe_trl.__main__ import train

torch.set_num_threads(1)
ROOT = Path(__file__).resolve().parents[3]
LIMIT = 400.0  # seconds for whatever a busy machine does


@pytest.fixture(scope="session")
def tiny(tmp_path_factory):
    """A randomly initialized Llama of two layers whose output head is tied to its embedding."""
    from tokenizers import Tokenizer, models
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    path = tmp_path_factory.mktemp("tiny")
    torch.manual_seed(5)
    LlamaForCausalLM(LlamaConfig(
        vocab_size=VOCABULARY, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=256, eos_token_id=2, bos_token_id=1, tie_word_embeddings=True,
    )).save_pretrained(path)  # fmt: skip
    words = Tokenizer(models.WordLevel({f"w{i}": i for i in range(VOCABULARY)}, unk_token="w0"))
    PreTrainedTokenizerFast(tokenizer_object=words, pad_token="w0", eos_token="w2").save_pretrained(path)
    return str(path)


def ragged(k):
    """Batch k: groups of four, and one of three, of which a sequence has a hole in its mask and one an advantage of the
    environment's."""
    groups = [make_group(100 * k + j) for j in range(2)] + [make_group(100 * k + 9, n=3)]
    first = groups[0]
    long = max(range(4), key=lambda i: sum(m != -100 for m in first["masks"][i]))
    at = len(first["tokens"][long]) - 2
    first["masks"][long][at] = -100
    first["inference_logprobs"][long][at] = 1.0
    groups[1]["advantages"] = [None, None, [0.7], None]
    return groups


@pytest.fixture
def api():
    """Makes trajectory servers and closes them."""
    made = []

    def make(**given):
        made.append(FakeAPI(**{"batch": ragged, **given}))
        return made[-1]

    yield make
    for a in made:
        a.close()


def given(folder, model, url, /, config=None, **change):
    """Settings of a quick run in float32."""
    base = {
        "model": {"path": model}, "steps": 1, "save_every": 0, "seed": 3,
        "data": {"url": url, "batch_size": 11, "batch_retry_delay": 0.01, "batch_max_wait": 0.05, "max_length": 64,
                 "register_delay": [0.01, 0.02]},
        "checkpoint_dir": str(folder / "checkpoints"), "events_file": str(folder / "events.jsonl"),
        "config": {"learning_rate": 1e-3, "lr_scheduler_type": "constant", "weight_decay": 0.0,
                   "per_device_train_batch_size": 4, **(config or {})},
    }  # fmt: skip
    for name, value in change.items():
        base[name] = {**base[name], **value} if isinstance(value, dict) else value
    return base


def events(folder, kind):
    """The run's events of one type."""
    path = folder / "events.jsonl"
    found = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    return [e for e in found if e["type"] == kind]


def metrics(folder):
    """{step: its metrics}."""
    return {e["step"]: e["metrics"] for e in events(folder, "metric")}


def exposed(run, limit):
    """Waits for the end of a run; returns the addresses beyond loopback at which it or a child of it has listened."""
    found, end = set(), time.monotonic() + limit
    while run.poll() is None and time.monotonic() < end:
        with contextlib.suppress(psutil.NoSuchProcess):
            top = psutil.Process(run.pid)
            for process in [top, *top.children(recursive=True)]:
                with contextlib.suppress(psutil.NoSuchProcess):
                    found |= {c.laddr for c in process.net_connections("tcp") if c.status == psutil.CONN_LISTEN}
        time.sleep(0.1)
    return {a for a in found if not ipaddress.ip_address(a.ip).is_loopback}


def trained(folder, settings_):
    """A whole run inside this process; its metrics by step."""
    folder.mkdir(exist_ok=True)
    bridge = Bridge.open(settings.from_dict(settings_, TRLSettings), device=torch.device("cpu"), signals=False)
    train(bridge)
    assert bridge.close() == 0
    return metrics(folder)


@pytest.fixture
def start():
    """start(folder, settings, ranks) starts the trainer as processes."""
    made = []

    def build(folder, settings_, ranks=1):
        folder.mkdir(exist_ok=True)
        path = folder / "config.json"
        path.write_text(json.dumps(settings_))
        sources = [ROOT / "sdk/python/src", ROOT / "plugins/trl"]
        env = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, sources)), "OMP_NUM_THREADS": "1",
               "CUDA_VISIBLE_DEVICES": ""}  # fmt: skip
        launch = []
        if ranks > 1:  # as the plugin starts them (sdk/kit/worker): they find each other in files
            env |= {"RECIPE_RANKS_FILE": str(folder / "ranks"), "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1",
                    "GLOO_SOCKET_IFNAME": "lo"}  # fmt: skip
            launch = ["-m", "torch.distributed.run", "--nproc-per-node", str(ranks), "--nnodes", "1",
                      "--rdzv-id", "worker", "--rdzv-backend", "c10d", "--rdzv-conf", "store_type=file",
                      "--rdzv-endpoint", str(folder / "meeting")]  # fmt: skip
        with open(folder / "log", "ab") as log:
            made.append(subprocess.Popen([sys.executable, *launch, "-m", "recipe_trl", "--config", path], env=env,
                                         stdout=log, stderr=log))  # fmt: skip
        return made[-1]

    yield build
    for process in made:
        process.kill()
        process.wait()
