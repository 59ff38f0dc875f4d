"""What is restored from a checkpoint, and what is refused."""

import math
from pathlib import Path

import pytest
import torch
from recipe_sdk import Checkpoint, errors, publish
from recipe_sdk.checkpoint import newest, read_state

from worker import checkpoint

from .conftest import attached
from .test_model import after_steps, stepper


@pytest.fixture(scope="module")
def trained(tmp_path_factory, tiny):
    """saved(**settings) -> the path of a checkpoint after one step with these settings."""
    root, made = tmp_path_factory.mktemp("trained"), {}

    def saved(**change):
        key = str(change)
        if key not in made:
            s = stepper(root / str(len(made)), tiny, **change)
            after_steps(s, 1)
            made[key] = saved_by(s)
        return made[key]

    return saved


def saved_by(s, metrics=None):
    """The path of a checkpoint in the current format."""
    bridge = attached(s)
    bridge.step, bridge.last = 1, metrics or {}
    return Path(bridge.save("asked"))


def load(path, s):
    checkpoint.load_weights(path, s.policy)
    found = Checkpoint(path, 1, read_state(path))
    checkpoint.load_training(found, s.policy, s.optimizer, name=s.config.optimizer.name)


def test_resume_takes_constants_new_and_moments_saved(tmp_path, tiny, trained):
    s = stepper(tmp_path, tiny, optimizer={"beta1": 0.5, "beta2": 0.9, "epsilon": 1e-3})
    load(trained(), s)
    (group,) = s.optimizer.param_groups
    assert (group["betas"], group["eps"]) == ((0.5, 0.9), 1e-3)
    moments = torch.load(trained() / "training" / "optimizer.pt", weights_only=True)["state"]
    for name, p in s.policy.named_parameters():
        assert torch.equal(s.optimizer.state[p]["exp_avg"], moments[name]["exp_avg"])


def test_constants_are_set_before_step_counters(tmp_path, tiny, trained, monkeypatch):
    """A GPU's AdamW is fused and has its counters there; a checkpoint of a CPU says that it is not."""
    s = stepper(tmp_path, tiny)
    s.optimizer.param_groups[0]["fused"], told = True, []
    take = s.optimizer.load_state_dict
    monkeypatch.setattr(s.optimizer, "load_state_dict", lambda state: told.extend(state["param_groups"]) or take(state))
    load(trained(), s)
    assert torch.load(trained() / "training" / "optimizer.pt")["param_groups"][0]["fused"] is not True
    assert [g["fused"] for g in told] == [True]


@pytest.mark.parametrize("written, change, named", [
    ({"lora": {"rank": 4}}, {"lora": {"rank": 8}}, r"shape \[4, 32\] .* \[8, 32\]"),
    ({}, {"lora": {"rank": 4}}, "trained all weights"),
    ({"lora": {"rank": 4}}, {}, "trained adapters"),
    ({}, {"optimizer": {"name": "sgd"}}, "optimizer.name = adamw, whose moments sgd cannot use"),
])  # fmt: skip
def test_a_checkpoint_of_another_kind_is_refused(tmp_path, tiny, trained, written, change, named):
    s = stepper(tmp_path, tiny, **change)
    before = {n: p.clone() for n, p in s.policy.named_parameters()}
    with pytest.raises(errors.CheckpointError, match=named) as e:
        load(trained(**written), s)
    assert e.value.checks
    if "optimizer" not in change:
        assert all(torch.equal(before[n], p) for n, p in s.policy.named_parameters())


def test_a_full_disk_leaves_no_half_checkpoint(tmp_path, tiny, monkeypatch):
    s = stepper(tmp_path, tiny)
    after_steps(s, 1)
    metrics = {"loss/total": math.nan}

    def full(*_, **__):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as m:
        m.setattr(torch, "save", full)
        with pytest.raises(errors.CheckpointError, match="No space left") as e:
            saved_by(s, metrics)
    assert e.value.checks and newest(s.config.checkpoint_dir) is None
    path = saved_by(s, metrics)
    assert [p.name for p in path.parent.iterdir()] == ["step_1"]
    assert read_state(path)["metrics"] == {"loss/total": None}, "what JSON has no word for is null"


def test_a_publication_removes_what_killed_ones_left(tmp_path, tiny):
    s = stepper(tmp_path, tiny)
    for name in (".tmp-served-7", ".old-served-8", ".tmp-served-2-9"):
        (tmp_path / "out" / name).mkdir(parents=True)
    body = {"version": 1, "transport": "reload", "dir": str(tmp_path / "out" / "served")}
    publish.publish(attached(s), body)
    assert {p.name for p in (tmp_path / "out").iterdir()} == {"served", ".tmp-served-2-9"}
