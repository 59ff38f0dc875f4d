"""TRL's settings under TRL's names; what recipe decides itself is refused with the way to say it."""

import inspect
import json
import subprocess
import sys
from pathlib import Path

import pytest
import trl
from recipe_sdk import settings
from recipe_sdk.fields import ConfigError
from recipe_sdk.trl import TRLSettings, sizes

from recipe_trl.settings import build, known, refused, table

from .conftest import given

pytestmark = pytest.mark.short


def built(tmp_path, config, **change):
    return build(settings.from_dict(given(tmp_path, "m", "http://x", config, **change), TRLSettings), 1)


def test_the_installed_trl_has_the_settings_listed():
    assert set(known()) <= set(table().known), f"TRL {trl.__version__} has settings that settings.json lacks"
    assert {n for n in table().known if "." not in n} <= set(known()), (
        f"TRL {trl.__version__} lacks settings that settings.json has"
    )
    assert not set(table().known) & set(table().managed)
    for name, kinds in known().items():
        assert set(kinds.split("|")) <= set(table().known[name].split("|")), f"{name} may be {kinds}, see --known"
    of_losses = Path(inspect.getfile(trl.GRPOTrainer)).read_text()
    for name in ("importance_sampling_level", "loss_type", "scale_rewards", "vllm_importance_sampling_mode"):
        assert all(f'"{choice}"' in of_losses for choice in table().choices[name]), name


def test_settings_reach_trl(tmp_path):
    found = built(tmp_path, {
        "loss_type": "cispo", "epsilon_high": 5.0, "learning_rate": 3e-6, "optim": "adafactor", "dtype": "bfloat16",
        "attn_implementation": "eager", "per_device_train_batch_size": 2, "gradient_accumulation_steps": 3,
        "use_peft": True, "lora_r": 8, "deepspeed": None,
    }, data={"batch_size": 12, "max_length": 100, "max_prompt_length": 30}, steps=7)  # fmt: skip
    args = found["args"]
    assert (args.loss_type, args.epsilon_high, args.optim, args.learning_rate) == ("cispo", 5.0, "adafactor", 3e-6)
    assert (args.steps_per_generation, args.gradient_accumulation_steps, args.max_steps) == (6, 3, 14)
    assert args.max_completion_length == 70 and args.model_init_kwargs["dtype"] == "bfloat16"
    assert found["peft_config"].r == 8 and found["quantization_config"] is None
    four = built(tmp_path, {"load_in_4bit": True, "peft_config": {"r": 3, "target_modules": "all-linear"}})
    assert four["quantization_config"].load_in_4bit and four["peft_config"].r == 3


@pytest.mark.parametrize(("config", "part"), [
    ({"use_vllm": True}, "config.use_vllm: recipe serves the policy"),
    ({"vllm_mode": "colocate"}, "config.vllm_mode: recipe serves the policy"),
    ({"reward_funcs": ["accuracy_reward"]}, "rewards are those of the environment"),
    ({"dataset_name": "gsm8k"}, "there is no dataset"),
    ({"num_generations": 8}, "group_size of the environment"),
    ({"save_steps": 5}, "checkpoints { every"),
    ({"lerning_rate": 1e-5}, "did you mean learning_rate?"),
    ({"gradient_accumulation_steps": 2}, "does not divide"),
    ({"lora_r": 8, "use_peft": True, "load_in_4bit": True, "load_in_8bit": True}, "8 bit and 4 bit"),
    ({"learning_rate": "fast"}, "fast"),
    ({"use_peft": "false"}, "config.use_peft: expected bool, got 'false'"),
    ({"epsilon_high": "0.28"}, "config.epsilon_high: expected number or null"),
    ({"per_device_train_batch_size": 2.5}, "expected whole number, got 2.5"),
    ({"per_device_train_batch_size": 0}, "expected 1 or more, got 0"),
    ({"scale_rewards": "grp"}, "config.scale_rewards: expected one of group, batch, none"),
    ({"peft_config": {"rr": 8}}, "config.peft_config.rr: peft has no such setting of LORA; did you mean r?"),
    ({"peft_config": {"peft_type": "LORA2"}}, "config.peft_config.peft_type: expected one of LORA"),
])  # fmt: skip
def test_what_is_wrong_is_said(config, part, tmp_path):
    with pytest.raises(ConfigError, match="the configuration is wrong") as e:
        built(tmp_path, config)
    assert part in str(e.value)


def test_importance_sampling_stays_trls():
    assert refused({"vllm_importance_sampling_mode": "token_mask"}) == []


def test_check_needs_no_gpu_and_no_model(tmp_path):
    for config, status in (({}, 0), ({"use_vllm": True}, 2)):
        path = tmp_path / "config.json"
        path.write_text(json.dumps(given(tmp_path, "org/a-model-that-is-not-there", "http://x", config)))
        done = subprocess.run([sys.executable, "-m", "recipe_trl", "--check", path], capture_output=True, text=True)
        assert done.returncode == status, done.stderr
        assert ("config.use_vllm" in done.stderr) == bool(status)


def test_sizes_cut_a_batch():
    assert sizes(64, 1, 8) == (8, 8, 8, 2, 1)
    assert sizes(64, 2, 8, accumulate=2) == (8, 4, 2, 2, 2)
    assert sizes(9, 2, 3, iterations=2) == (3, 2, 2, 2, 2)
    with pytest.raises(ConfigError, match="at least two"):
        sizes(1, 1, 8)
