"""The same batches come to the same loss and gradient here and in recipe's own worker."""

import json
from importlib.metadata import version

import pytest
import torch
from packaging.version import Version
from recipe_sdk import Bridge
from recipe_sdk.trl.mixin import LUSPO
from worker import config
from worker.train import Trainer

from .conftest import LIMIT, events, given, metrics, trained

NONE = {"vllm_importance_sampling_correction": False}
TOKEN = {"vllm_importance_sampling_mode": "token_truncate", "vllm_importance_sampling_clip_max": 1.02}
SEQUENCE = {"vllm_importance_sampling_mode": "sequence_mask", "vllm_importance_sampling_clip_max": 1.05}
# Name: TRL's settings, and ours that mean the same. On the second step every policy differs from the sampler's.
CASES = {
    "dapo": ({"loss_type": "dapo", **NONE}, {"loss": {"aggregation": "token-mean"}}),
    "grpo": ({"loss_type": "grpo", **NONE}, {"loss": {"aggregation": "batch-mean-token-mean"}}),
    "dr_grpo": ({"loss_type": "dr_grpo", "max_completion_length": 20, "scale_rewards": "none", **NONE},
                {"loss": {"aggregation": "batch-sum-norm", "length_norm": 20}, "advantages": {"std": "none"}}),
    "bnpo": ({"loss_type": "bnpo", "per_device_train_batch_size": 11, **NONE}, {"loss": {"aggregation": "token-mean"}}),
    "batch deviation": ({"scale_rewards": "batch", **NONE}, {"advantages": {"std": "batch"}}),
    "sequence ratio": ({"loss_type": "grpo", "importance_sampling_level": "sequence", **NONE},
                       {"loss": {"ratio_level": "sequence", "aggregation": "batch-mean-token-mean"}}),
    "reference": ({"beta": 0.1, **NONE}, {"kl": {"coefficient": 0.1, "estimator": "k3"}}),
    "two passes": ({"num_iterations": 2, **NONE}, {"data": {"epochs": 2}}),
    "clipped ratios": ({"loss_type": "cispo", "epsilon_high": 0.9, **NONE},
                       {"loss": {"name": "cispo", "cispo_cap": 0.9}}),
    "sapo": ({"loss_type": "sapo", **NONE}, {"loss": {"name": "sapo", "aggregation": "batch-mean-token-mean"}}),
    "luspo": ({"loss_type": "luspo", "importance_sampling_level": "sequence", **NONE},
              {"loss": {"name": "luspo", "ratio_level": "sequence"}}),
    "vespo": ({"loss_type": "vespo", **NONE}, {"loss": {"name": "vespo"}}),
    "clipped on both sides": ({"epsilon": 0.005, "delta": 1.008, **NONE},
                              {"loss": {"clip_low": 0.005, "clip_high": 0.005, "delta": 1.008}}),
    "uncertain tokens": ({"top_entropy_quantile": 0.5, "per_device_train_batch_size": 11, **NONE},
                         {"loss": {"top_entropy": 0.5}}),
    "token weights": (TOKEN, {"correction": {"importance": "token", "importance_high": 1.02}}),
    "sequence weights": (SEQUENCE, {"correction": {"importance": "sequence", "importance_mode": "mask",
                                                   "importance_high": 1.05}}),
    "against the sampler": ({}, {"correction": {"old_policy": "rollout"}}),
    "adapters": ({"use_peft": True, "lora_r": 4, "lora_alpha": 8, "lora_dropout": 0.0,
                  "lora_target_modules": ["q_proj", "v_proj"], **NONE},
                 {"lora": {"rank": 4, "alpha": 8, "target_modules": ["q_proj", "v_proj"]}}),
}  # fmt: skip


def ours(folder, model, url, change, steps):
    """Metrics by step of the GRPO worker."""
    base = {
        "model": {"path": model, "dtype": "float32", "device": "cpu", "gradient_checkpointing": False},
        "optimizer": {"learning_rate": 1e-3, "weight_decay": 0.0}, "advantages": {"epsilon": 1e-4},
        "kl": {"coefficient": 0.0}, "loss": {}, "correction": {"importance": "none"}, "lora": {}, "steps": steps,
        "data": {"url": url, "batch_size": 11, "batch_retry_delay": 0.01, "batch_max_wait": 0.05, "max_length": 64,
                 "register_delay": [0.01, 0.02]},
        "save_every": 0, "seed": 3, "checkpoint_dir": str(folder / "c"), "events_file": str(folder / "events.jsonl"),
    }  # fmt: skip
    folder.mkdir()
    for name, values in change.items():
        base[name] = {**base[name], **values}
    path = folder / "config.json"
    path.write_text(json.dumps(base))
    bridge = Bridge.open(config.load(str(path)), device=torch.device("cpu"), signals=False)
    Trainer(bridge).loop()
    assert bridge.close() == 0
    return metrics(folder)


OLD = Version(version("trl")) < LUSPO
SHORT = ("dapo", "grpo", "token weights", "against the sampler", "adapters")


@pytest.mark.parametrize("name", [pytest.param(n, marks=pytest.mark.short if n in SHORT else ()) for n in CASES])
def test_loss_and_gradient_are_those_of_our_worker(name, tmp_path, tiny, api):
    if name == "luspo" and OLD:
        pytest.skip("refused with this TRL")
    theirs, change = CASES[name]
    more = {"old_policy": "rollout"} if name == "against the sampler" else {}
    a = trained(tmp_path / "trl", given(tmp_path / "trl", tiny, api().url, theirs, steps=2, **more))
    b = ours(tmp_path / "ours", tiny, api().url, change, 2)
    for step in (1, 2):
        for what in ("loss/total", "grad_norm"):
            assert a[step][what] == pytest.approx(b[step][what], rel=1e-5, abs=2e-6), (step, what)


@pytest.mark.skipif(not OLD, reason="the loss is right with this TRL")
def test_luspo_of_an_old_trl_is_refused(tmp_path, tiny, api, start):
    folder = tmp_path / "run"
    assert start(folder, given(folder, tiny, api().url, CASES["luspo"][0])).wait(LIMIT) == 1
    (error,) = events(folder, "error")
    assert "install trl 1.16.0 or newer" in error["message"]
