"""A tiny model with a tied head, and trainers as processes, each on a server that hands out the same batches."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from recipe_sdk.testing import VOCABULARY, FakeAPI, Supervisor

ROOT = Path(__file__).resolve().parents[3]
LIMIT = 600.0  # seconds for whatever a busy machine does: importing verl alone took a minute on one
PATHS = {"recipe_verl": ROOT / "plugins/verl", "worker": ROOT / "plugins/grpo"}
BYPASS = {"algorithm": {"rollout_correction": {"bypass_mode": True}}}


@pytest.fixture(scope="session")
def tiny(tmp_path_factory):
    """A randomly initialized Llama of two layers whose output head is its embedding."""
    from transformers import LlamaConfig, LlamaForCausalLM

    path = tmp_path_factory.mktemp("tiny")
    torch.manual_seed(5)
    LlamaForCausalLM(LlamaConfig(
        vocab_size=VOCABULARY, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=256, eos_token_id=2, bos_token_id=1, tie_word_embeddings=True,
    )).save_pretrained(path)  # fmt: skip
    return str(path)


@pytest.fixture(scope="session")
def hybrid(tmp_path_factory):
    """A randomly initialized Qwen3-Next of two layers, one of which carries a state from token to token."""
    from transformers import Qwen3NextConfig, Qwen3NextForCausalLM

    path = tmp_path_factory.mktemp("hybrid")
    torch.manual_seed(5)
    made = Qwen3NextForCausalLM(Qwen3NextConfig(
        vocab_size=VOCABULARY, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, head_dim=8, max_position_embeddings=256, eos_token_id=2, bos_token_id=1, num_experts=4,
        num_experts_per_tok=2, moe_intermediate_size=16, shared_expert_intermediate_size=16, linear_num_value_heads=4,
        linear_num_key_heads=2, linear_key_head_dim=8, linear_value_head_dim=8,
        layer_types=["linear_attention", "full_attention"],
    ))  # fmt: skip
    with torch.no_grad():
        for name, p in made.named_parameters():
            if p.dim() > 1 and "norm" not in name and "A_log" not in name:
                p.normal_(std=0.3)  # far enough from zero for its layers to matter
    made.save_pretrained(path)
    return str(path)


class Trainer:
    """A trainer's process, its log and its events. beside: a folder of packages that its environment has as well."""

    def __init__(
        self, where, given, *, module="recipe_verl", world=1, python=sys.executable, supervised=False, beside=None
    ):
        where.mkdir(parents=True, exist_ok=True)
        self.where, self.events_file = where, where / "events.jsonl"
        self.supervisor = Supervisor() if supervised else None
        own = {"control": self.supervisor.address, "control_token": "abc"} if supervised else {}
        given = {"checkpoint_dir": str(where / "checkpoints"), "events_file": str(self.events_file), **own, **given}
        if module == "recipe_verl":
            given = {"backend": "fsdp2", **given}
        (where / "config.json").write_text(json.dumps(given))
        paths = [str(ROOT / "sdk/python/src"), str(PATHS[module])]
        if os.environ.get("VERL_UNDER_TEST"):  # another version of verl, before the environment's own
            paths.append(os.environ["VERL_UNDER_TEST"])
        if beside:
            paths.append(str(beside))
        env = {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
        torchrun = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(world)] if world > 1 else []
        self.log = open(where / "log", "ab")
        self.process = subprocess.Popen(
            [python, *torchrun, "-m", module, "--config", str(where / "config.json")], env=env, stdout=self.log,
            stderr=self.log, start_new_session=True,
        )  # fmt: skip

    def reported(self, kind):
        """Events of a type so far."""
        if not self.events_file.exists():
            return []
        lines = self.events_file.read_text().splitlines()
        return [e for line in lines if line.endswith("}") and (e := json.loads(line))["type"] == kind]

    def text(self):
        return (self.where / "log").read_text()[-6000:]

    def metrics(self):
        """Waits for its end; its metrics of each step."""
        assert self.process.wait(LIMIT) == 0, self.text()
        return [e["metrics"] for e in self.reported("metric")]

    def kill(self):
        """SIGKILL, to torchrun and its ranks, which torchrun starts in sessions of their own."""
        import psutil

        if self.process.poll() is None:
            launcher = psutil.Process(self.process.pid)
            for process in [launcher, *launcher.children(recursive=True)]:
                process.kill()
        self.process.wait()

    def close(self):
        self.kill()
        self.log.close()
        if self.supervisor:
            self.supervisor.close()


@pytest.fixture
def start(tmp_path, tiny):
    """start(name, config, …) starts a trainer on its own server, which hands out the same batches as any other."""
    made = []

    def build(name, config, *, api=None, module="recipe_verl", **more):
        options = {k: more.pop(k) for k in ("world", "python", "supervised", "beside") if k in more}
        if api is None:
            api = FakeAPI()
            made.append(api)
        given = {
            "model": {"path": tiny}, "steps": 1, "save_every": 0,
            "data": {"url": api.url, "batch_size": 8, "batch_retry_delay": 0.05, "batch_max_wait": 0.1}, **more,
        }  # fmt: skip
        given = {**given, "config": config} if module == "recipe_verl" else {**given, **config}
        made.append(Trainer(tmp_path / name, given, module=module, **options))
        return made[-1]

    yield build
    for it in reversed(made):
        it.close()
