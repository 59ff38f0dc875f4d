"""Writes verl.json: what verl's own functions make of the numbers of test_objective.data, losses with their gradients.

    PYTHONPATH=sdk/python/src:plugins/grpo python plugins/grpo/worker/tests/golden/make_verl.py CHECKOUT_OF_VERL REVISION

verl itself need not be installed: what core_algos imports besides torch and numpy is stood in for here."""

import importlib.util
import json
import sys
import types
from pathlib import Path

import torch
from worker.tests.test_objective import data

LOSSES = {"vanilla": "ppo", "gspo": "gspo", "cispo": "cispo", "sapo": "sapo", "geo_mean": "gmpo", "gpg": "gpg",
          "kl_cov": "kl_cov", "clip_cov": "clip_cov"}  # fmt: skip
AGGREGATIONS = ("token-mean", "seq-mean-token-sum", "seq-mean-token-mean", "seq-mean-token-sum-norm")
KL = ("kl", "abs", "mse", "low_var_kl", "kl+", "abs+", "mse+", "low_var_kl+")


class Settings(dict):
    __getattr__ = dict.__getitem__


class ActorConfig(Settings):
    """Some of verl's functions want one, others must not get one's sibling."""


def load(checkout: Path):
    def module(name, **content):
        sys.modules[name] = types.ModuleType(name)
        sys.modules[name].__dict__.update(content)

    def file(name, path):
        spec = importlib.util.spec_from_file_location(name, checkout / path)
        sys.modules[name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[name])
        return sys.modules[name]

    module("omegaconf", DictConfig=dict)
    module("tensordict", TensorDict=object)
    module("verl", __path__=[])
    module("verl.utils", __path__=[], as_torch_index=None, group_mean_std=None)
    module("verl.utils.device", get_device_name=lambda: "cpu", get_torch_device=lambda: None)
    module("verl.utils.import_utils", deprecated=lambda *a, **k: lambda f: f)
    module("verl.trainer.config", AlgoConfig=type("AlgoConfig", (), {}))
    module("verl.workers.config", ActorConfig=ActorConfig)
    sys.modules["verl.utils"].torch_functional = file("verl.utils.torch_functional", "verl/utils/torch_functional.py")
    return file("verl.core_algos", "verl/trainer/ppo/core_algos.py")


def main() -> None:
    core = load(Path(sys.argv[1]))
    d = data(21)
    mask, here = d["M"], d["M"] > 0
    weight = torch.exp(d["old"] - d["b"]).clamp(max=2.0)
    settings = {"clip_ratio": 0.2, "clip_ratio_low": 0.2, "clip_ratio_high": 0.28, "clip_ratio_c": 3.0, "tau_pos": 1.0,
                "tau_neg": 1.05, "global_batch_info": {"loss_scale_factor": 11}}  # fmt: skip
    # no token has such a covariance: clip_cov picks tokens at random, so here it picks none
    settings["policy_loss"] = Settings(
        clip_cov_ratio=0.0002, clip_cov_lb=-50.0, clip_cov_ub=-40.0, kl_cov_ratio=0.2, ppo_kl_coef=0.1
    )
    losses, divergences = [], []
    for theirs, ours in LOSSES.items():
        for mode in AGGREGATIONS:
            for weighted in (False, True):
                lp = d["lp"].clone().requires_grad_()
                value, _ = core.POLICY_LOSS_REGISTRY[theirs](
                    old_log_prob=d["old"], log_prob=lp, advantages=d["A"], response_mask=mask, loss_agg_mode=mode,
                    config=ActorConfig(settings), rollout_is_weights=weight if weighted else None,
                )  # fmt: skip
                value.backward()
                losses.append({"loss": ours, "verl": theirs, "aggregation": mode, "weighted": weighted,
                               "value": float(value.detach()), "gradient": lp.grad[here].tolist()})  # fmt: skip
    for name in KL:
        lp = d["lp"].clone().requires_grad_()
        value = core.kl_penalty(lp, d["ref"], name)
        (value * mask).sum().backward()
        divergences.append({"estimator": name, "value": value.detach()[here].tolist(),
                            "gradient": lp.grad[here].tolist()})  # fmt: skip
    (Path(__file__).parent / "verl.json").write_text(json.dumps({
        "source": f"verl {sys.argv[2]}, verl/trainer/ppo/core_algos.py, float64", "sequences": len(mask),
        "sequence": torch.nonzero(here)[:, 0].tolist(), "length": 11.0, "clip_low": 0.2, "clip_high": 0.28,
        "inputs": {k: d[k][here].tolist() for k in ("lp", "old", "b", "ref", "A")}, "losses": losses, "kl": divergences,
    }) + "\n")  # fmt: skip


main()
