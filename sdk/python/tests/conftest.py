"""A tiny model on disk, and the real trajectory API in a process of its own."""

import shutil
import subprocess
from pathlib import Path

import pytest
import torch

from recipe_sdk.api import Client
from recipe_sdk.testing import VOCABULARY, FakeAPI

torch.set_num_threads(1)
ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture(scope="session")
def tiny(tmp_path_factory):
    """A randomly initialized Llama of two layers."""
    from transformers import LlamaConfig, LlamaForCausalLM

    path = tmp_path_factory.mktemp("tiny")
    torch.manual_seed(5)
    LlamaForCausalLM(LlamaConfig(
        vocab_size=VOCABULARY, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=256, eos_token_id=2, bos_token_id=1,
    )).save_pretrained(path)  # fmt: skip
    return str(path)


@pytest.fixture(scope="session")
def runapi(tmp_path_factory):
    """The trajectory API's binary."""
    if shutil.which("go") is None:
        pytest.skip("the server is built with Go")
    binary = tmp_path_factory.mktemp("runapi") / "runapi"
    subprocess.run(["go", "build", "-o", binary, "./plugins/trajectories/runapi"], cwd=ROOT, check=True)
    return binary


@pytest.fixture
def server(runapi):
    """A trajectory API that keeps everything in memory."""
    process = subprocess.Popen([runapi, "--port", "0"], stdout=subprocess.PIPE, text=True)
    try:
        line = process.stdout.readline()
        yield Client(next(w for w in line.split() if w.startswith("http")), None, 30.0)
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


@pytest.fixture
def api():
    """Makes trajectory servers with configurable faults, and closes them."""
    made = []

    def make(**kwargs):
        made.append(FakeAPI(**kwargs))
        return made[-1]

    yield make
    for a in made:
        a.close()
