"""Axolotl's own trainer, built by Axolotl from its configuration, on recipe's batches (CPU)."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest
import torch
from recipe_sdk.fields import ConfigError
from recipe_sdk.settings import from_dict
from recipe_sdk.trl import TRLSettings
from safetensors.torch import load_file

from plugins.trl.tests.conftest import LIMIT, api, events, given, metrics, tiny, trained  # noqa: F401
from recipe_axolotl.__main__ import load
from recipe_axolotl.settings import configuration, names, table, unknown, written


def settings(folder, model, url, config=None, **change):
    """Settings of a quick run, those of TRL's tests in Axolotl's names."""
    s = given(folder, model, url, None, **change)
    return {**s, "config": {"learning_rate": 1e-3, "micro_batch_size": 4, "weight_decay": 0.0, **(config or {})}}


@pytest.fixture
def start():
    made = []

    def build(folder, s, ranks=1):
        folder.mkdir(exist_ok=True)
        path = folder / "config.json"
        path.write_text(json.dumps(s))
        env = {**os.environ, "CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1"}
        launch = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks)] if ranks > 1 else []
        with open(folder / "log", "ab") as log:
            made.append(subprocess.Popen([sys.executable, *launch, "-m", "recipe_axolotl", "--config", path],
                                         env=env, stdout=log, stderr=log))  # fmt: skip
        return made[-1]

    yield build
    for process in made:
        process.kill()
        process.wait()


def test_a_killed_run_goes_on_and_its_losses_are_trls(tmp_path, tiny, api, start):  # noqa: F811
    plain = trained(tmp_path / "trl", given(tmp_path / "trl", tiny, api().url, steps=4))
    folder = tmp_path / "axolotl"
    s = settings(folder, tiny, api().url, steps=4, save_every=2)
    first, end = start(folder, s), time.monotonic() + LIMIT
    while 3 not in metrics(folder):
        assert first.poll() is None and time.monotonic() < end, (folder / "log").read_text()
        time.sleep(0.02)
    first.send_signal(signal.SIGKILL)
    first.wait()
    assert start(folder, s).wait(LIMIT) == 0, (folder / "log").read_text()
    found = metrics(folder)
    assert sorted(found) == [1, 2, 3, 4] and events(folder, "resumed")
    for step, m in found.items():
        for what in ("loss/total", "grad_norm"):
            assert m[what] == pytest.approx(plain[step][what], rel=1e-4, abs=1e-6), (step, what)
    last = folder / "checkpoints" / "step_4"
    assert (last / "model.safetensors").exists() and (last / "tokenizer.json").exists()


def test_adapters_are_axolotls(tmp_path, tiny, api, start):  # noqa: F811
    folder = tmp_path / "run"
    lora = {"adapter": "lora", "lora_r": 4, "lora_alpha": 8, "lora_target_modules": ["q_proj", "v_proj"]}
    run = start(folder, settings(folder, tiny, api().url, lora, steps=2))
    assert run.wait(LIMIT) == 0, (folder / "log").read_text()
    (loaded,) = events(folder, "loaded")
    assert 0 < loaded["trained_parameters"] < loaded["parameters"] / 10
    assert loaded["compute_dtype"] == "float32"
    last = folder / "checkpoints" / "step_2"
    assert (last / "model.safetensors").exists() and (last / "trainer" / "adapter_config.json").exists()


@pytest.mark.parametrize("config", [{}, {"trl": {"loss_type": "grpo"}}], ids=["sum", "mean of rows"])
def test_two_ranks_train_as_one(config, tmp_path, tiny, api, start):  # noqa: F811
    found = []
    for ranks in (1, 2):
        folder = tmp_path / f"ranks{ranks}"
        run = start(folder, settings(folder, tiny, api().url, config, steps=2), ranks)
        assert run.wait(LIMIT) == 0, (folder / "log").read_text()
        found.append(metrics(folder))
    one, two = found
    assert sorted(two) == [1, 2]
    for step, m in two.items():
        for what in ("loss/total", "grad_norm", "entropy", "reward/mean"):
            assert m[what] == pytest.approx(one[step][what], rel=1e-4, abs=1e-7), (step, what)
    last = tmp_path / "ranks2" / "checkpoints" / "step_2"
    assert json.loads((last / "training" / "state.json").read_text())["world"] == 2
    one, two = (load_file(tmp_path / f"ranks{n}/checkpoints/step_2/model.safetensors") for n in (1, 2))
    assert one.keys() == two.keys() and all(torch.allclose(one[k], two[k], rtol=1e-3, atol=1e-5) for k in one)


def test_what_recipe_decides_is_refused(tmp_path):
    bad = {"datasets": [{"path": "x"}], "trl": {"use_vllm": True, "reward_funcs": ["r"]}, "save_steps": 3}
    with pytest.raises(ConfigError) as e:
        configuration(from_dict(settings(tmp_path, "m", "http://x", bad), TRLSettings), 1)
    for part in ("datasets: samples come from", "trl.use_vllm: recipe serves", "trl.reward_funcs: ", "save_steps: "):
        assert f"config.{part}" in str(e.value)


def test_axolotl_checks_its_own_settings(tmp_path, tiny):  # noqa: F811
    s = settings(tmp_path, tiny, "http://x", {"adapter": "lora", "lora_r": "four"})
    path = tmp_path / "config.json"
    path.write_text(json.dumps(s))
    done = subprocess.run([sys.executable, "-m", "recipe_axolotl", "--check", path], capture_output=True, text=True)
    assert done.returncode == 2 and "lora_r" in done.stderr, done.stderr


@pytest.mark.parametrize(("config", "part"), [
    ({"lerning_rate": 1e-5}, "config.lerning_rate: Axolotl has no such setting; did you mean learning_rate?"),
    ({"trl": {"loss_typ": "dapo"}}, "config.trl.loss_typ: Axolotl has no such setting; did you mean loss_type?"),
    ({"trl": {"loss_type": "dapoo"}}, "config.trl.loss_type: expected one of bnpo"),
    ({"trl": "x"}, "config.trl: expected object or null, got 'x'"),
    ({"micro_batch_size": 0}, "config.micro_batch_size: expected 1 or more, got 0"),
    ({"rl_beta": 0.1}, "config.rl_beta: write trl = { beta"),
    ({"plugins": ["no.such.Plugin"]}, "config.plugins: no.such.Plugin cannot be imported"),
    ({"plugins": ["axolotl.integrations.liger.LigerPlugin"], "liger_ropes": True}, "did you mean liger_rope?"),
])  # fmt: skip
def test_what_axolotl_would_pass_over_is_said(config, part, tmp_path, tiny):  # noqa: F811
    s = from_dict(settings(tmp_path, tiny, "http://x", config), TRLSettings)
    with pytest.raises(ConfigError, match="the configuration is wrong") as e:
        load(written(s, 1), s.config)
    assert part in str(e.value)


def test_the_plan_knows_axolotls_settings():
    from axolotl.utils.schemas.config import AxolotlInputConfig, FSDPConfig, TRLConfig

    sections = (("", AxolotlInputConfig), ("trl.", TRLConfig), ("fsdp_config.", FSDPConfig))
    every = {section + name for section, schema in sections for name in names(schema)}
    assert every <= table().known.keys() | table().managed.keys(), "settings.json lacks some"
    assert table().known.keys() <= every, "settings.json has others"
    taken = {"type_of_model": "x", "model_config": {"a": 1}, "lora_r": 8, "fsdp_config": {"fsdp_offload_params": True}}
    assert not list(unknown(taken, AxolotlInputConfig))
