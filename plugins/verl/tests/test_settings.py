"""What is refused before anything starts, and what reaches verl."""

from types import SimpleNamespace

import pytest
from hydra.errors import InstantiationException
from omegaconf import OmegaConf
from verl.utils.config import omega_conf_to_dataclass

from recipe_verl import packing, settings

BLOCK = SimpleNamespace(model=SimpleNamespace(path="/models/tiny"), steps=7)


@pytest.mark.parametrize(("given", "path", "words"), [
    ({"actor": {"optim": {"lrr": 1e-5}}}, "config.actor.optim.lrr", "is lr meant?"),
    ({"actor": {"fsdp_config": {"mixed_precison": {}}}}, "config.actor.fsdp_config.mixed_precison", "mixed_precision"),
    ({"algo": {"gamma": 1.0}}, "config.algo.gamma", "is algorithm meant?"),
    ({"actor_rollout_ref": {"rollout": {"n": 8}}}, "config.actor_rollout_ref.rollout.n", "group_size"),
    ({"rollout": {"temperature": 0.7}}, "config.rollout.temperature", "the environment's sampling"),
    ({"data": {"train_batch_size": 16}}, "config.data.train_batch_size", "prompts × group_size"),
    ({"trainer": {"nnodes": 2}}, "config.trainer.nnodes", "placement { nodes"),
    ({"trainer": {"n_gpus_per_node": 4}}, "config.trainer.n_gpus_per_node", "placement { gpus"),
    ({"reward": {"num_workers": 3}}, "config.reward.num_workers", "the environment, which scores"),
    ({"actor": {"grad_clip": 0.5}}, "config.actor.grad_clip", "actor.optim.clip_grad"),
    ({"model": {"path": "org/m"}}, "config.model.path", "model of the block"),
    ({"model_engine": "megatron"}, "config.model_engine", "backend"),
    ({"defaults": ["ppo_trainer", {"override model_engine": "megatron"}]}, "config.defaults", "backend"),
    ({"algorithm": {"adv_estimator": "gae"}}, "config.algorithm.adv_estimator", "a critic"),
    ({"algorithm": "grpo"}, "config.algorithm", "an object"),
    ({"actor": None}, "config.actor", "an object"),
    ({"actor": {"optim": "adam"}}, "config.actor.optim", "an object"),
    ({"actor": {"optim": {"lr": "1e-6"}}}, "config.actor.optim.lr", "a number"),
    ({"actor": {"ppo_epochs": {"first": 1, "second": 2}}}, "config.actor.ppo_epochs", "a whole number"),
    ({"actor_rollout_ref": {"actor": {"optim": {"lr": {"start": 1}}}}}, "config.actor_rollout_ref.actor.optim.lr",
     "a number"),
    ({"actor": {"policy_loss": "vanilla"}}, "config.actor.policy_loss", "an object"),
    ({"actor": {"loss_agg_mode": {"name": "token-mean"}}}, "config.actor.loss_agg_mode", "a string"),
    ({"algorithm": {"use_kl_in_reward": {"on": True}}}, "config.algorithm.use_kl_in_reward", "true or false"),
    ({"actor": {"use_kl_loss": "false"}}, "config.actor.use_kl_loss", "true or false"),
    ({"actor": {"ppo_mini_batch_size": 2.5}}, "config.actor.ppo_mini_batch_size", "a whole number"),
    ({"actor": {"ppo_epochs": 0}}, "config.actor.ppo_epochs", "1 or more"),
    ({"actor": {"optim": {"lr": 1e-5}}, "actor_rollout_ref": {"actor": {"optim": {"lr": 2e-5}}}},
     "config.actor_rollout_ref.actor.optim.lr", "It is actor.optim.lr, too"),
    ({"model": {"lora": {"merge": True}}}, "config.model.lora.merge", "whole weights"),
])  # fmt: skip
def test_a_mistake_has_its_place_and_remedy(given, path, words):
    (found,) = settings.mistakes(given, "fsdp2")
    assert ".".join(found["path"]) == path
    assert words in found["summary"] + found["detail"]
    assert not found.get("warning")


@pytest.mark.parametrize(("given", "path"), [
    ({"actor": {"clip_ratio": 0.1}}, "config.actor.clip_ratio"),
    ({"actor": {"clip_ratio": 0.1, "clip_ratio_low": None, "clip_ratio_high": None}}, None),
    ({"actor_rollout_ref": {"actor": {"kl_loss_coef": 0.1}}}, "config.actor_rollout_ref.actor.kl_loss_coef"),
    ({"actor": {"kl_loss_coef": 0.1, "use_kl_loss": True}}, None),
    ({"model": {"lora": {"rank": 8}}}, "config.model.lora.rank"),
    ({"model": {"lora_alpha": 32}}, "config.model.lora_alpha"),
    ({"model": {"lora_alpha": 32, "lora_rank": 8}}, None),
    ({"ref": {"fsdp_config": {"param_offload": True}}}, "config.ref.fsdp_config.param_offload"),
    ({"actor": {"ppo_micro_batch_size_per_gpu": 2}}, None),
    ({"actor": {"ppo_micro_batch_size_per_gpu": 2, "use_dynamic_bsz": True}},
     "config.actor.ppo_micro_batch_size_per_gpu"),
    ({"algorithm": {"rollout_correction": {"rollout_is_threshold": "0.5_5.0"}}},
     "config.algorithm.rollout_correction.rollout_is_threshold"),
    ({"algorithm": {"rollout_correction": {"rollout_is_threshold": "0.5_5.0", "rollout_is": "token"}}}, None),
    ({"algorithm": {"gamma": 0.9}}, "config.algorithm.gamma"),
    ({"algorithm": {"gamma": 0.9, "adv_estimator": "reinforce_plus_plus"}}, None),
])  # fmt: skip
def test_what_does_nothing_is_warned_of(given, path):
    found = settings.mistakes(given, "fsdp2")
    assert [".".join(m["path"]) for m in found] == ([path] if path else [])
    assert all(m["warning"] for m in found)


def test_short_and_whole_names_are_put_together():
    given = {"actor": {"optim": {"lr": 1e-5}}, "actor_rollout_ref": {"actor": {"optim": {"weight_decay": 0.5}}}}
    optim = settings.merged(given, BLOCK, "fsdp2", cuda=False, flash=False).actor_rollout_ref.actor.optim
    assert (optim.lr, optim.weight_decay) == (1e-5, 0.5)


def test_a_pasted_file_may_repeat_verls_defaults():
    """verl's own files, as they are, but for the estimator that needs a critic."""
    folder = settings.package() / "trainer" / "config"
    for name in ("ppo_trainer.yaml", "_generated_ppo_trainer.yaml"):
        given = OmegaConf.to_container(OmegaConf.load(folder / name))
        given["algorithm"]["adv_estimator"] = "grpo"
        assert settings.mistakes(given, "fsdp2") == []


def test_fields_that_only_a_dataclass_has_are_known():
    assert settings.mistakes({"actor": {"fsdp_config": {"mixed_precision": {"param_dtype": "bf16"}}}}, "fsdp2") == []
    assert settings.mistakes({"model": {"override_config": {"attn_implementation": "sdpa"}}}, "fsdp2") == []


def test_what_the_recipe_says_reaches_verl():
    given = {
        "actor": {"optim": {"lr": 1.0, "betas": [0.9, 0.95]}, "ppo_mini_batch_size": 4.0, "ppo_epochs": 2.0},
        "actor_rollout_ref": {"model": {"lora_rank": 8.0}}, "algorithm": {"norm_adv_by_std_in_grpo": False},
    }  # fmt: skip
    c = settings.merged(given, BLOCK, "fsdp2", cuda=True, flash=True)
    actor, model = c.actor_rollout_ref.actor, c.actor_rollout_ref.model
    assert (actor.optim.lr, actor.ppo_mini_batch_size, actor.ppo_epochs) == (1.0, 4, 2)
    assert isinstance(actor.ppo_mini_batch_size, int) and isinstance(actor.optim.lr, float)
    assert (actor.strategy, actor.optim.total_training_steps, actor.use_dynamic_bsz) == ("fsdp2", 7, True)
    assert (model.path, model.lora_rank, model.lora.merge) == ("/models/tiny", 8, True)
    assert c.algorithm.adv_estimator == "grpo" and c.algorithm.norm_adv_by_std_in_grpo is False
    assert model.use_remove_padding is True and actor.fsdp_config.use_torch_compile is True


def test_rows_of_a_mixing_model_are_padded_by_default():
    c = settings.merged({}, BLOCK, "fsdp2", cuda=True, flash=True, apart=True)
    model = c.actor_rollout_ref.model
    assert model.use_remove_padding is False and "attn_implementation" not in model.override_config
    asked = settings.merged({"model": {"use_remove_padding": True}}, BLOCK, "fsdp2", cuda=True, flash=True, apart=True)
    assert asked.actor_rollout_ref.model.use_remove_padding is True


@pytest.mark.parametrize(("family", "answer"), [
    ("llama", False), ("gemma2", False), ("gemma3_text", False), ("llama4_text", False), ("minimax_m2", False),
    ("qwen3", False), ("qwen3_5", False), ("qwen3_5_moe", False), ("gpt_oss", False), ("deepseek_v3", False),
    ("qwen3_next", True), ("falcon_h1", True), ("bamba", True), ("jamba", True), ("granitemoehybrid", True),
    ("lfm2", True), ("minimax", True), ("recurrent_gemma", True), ("nemotron_h", True), ("mamba", True),
])  # fmt: skip
def test_which_families_sequences_would_be_mixed(family, answer):
    from transformers import AutoConfig

    assert packing.mixed(AutoConfig.for_model(family).to_dict()) is answer


def test_models_whose_layers_are_not_listed():
    """As older files of configuration have it."""
    assert packing.mixed({"model_type": "qwen3_next", "linear_conv_kernel_dim": 4})
    assert packing.mixed({"model_type": "minimax", "attn_type_list": [0, 1]})
    assert not packing.mixed({"model_type": "minimax_m2", "attn_type_list": [1, 1]})
    assert packing.mixed({"model_type": "some_vl", "text_config": {"layer_types": ["linear_attention"]}})


def test_a_micro_batch_size_turns_off_token_filling():
    c = settings.merged({"actor": {"ppo_micro_batch_size_per_gpu": 2}}, BLOCK, "fsdp2", cuda=False, flash=False)
    actor, model = c.actor_rollout_ref.actor, c.actor_rollout_ref.model
    assert actor.use_dynamic_bsz is False and actor.ppo_micro_batch_size_per_gpu == 2
    assert actor.fsdp_config.mixed_precision.param_dtype == "fp32" and actor.fsdp_config.use_torch_compile is False
    assert model.use_remove_padding is False and model.override_config.attn_implementation == "sdpa"


@pytest.mark.parametrize(("actor", "tokens"), [
    ({}, 16384), ({"ppo_max_token_len_per_gpu": 40000}, 40000),
    ({"ppo_max_token_len_per_gpu": 40000, "ppo_infer_max_token_len_per_gpu": 80000}, 80000),
])  # fmt: skip
def test_passes_without_gradients_share_token_limits(actor, tokens):
    c = settings.merged({"actor": actor}, BLOCK, "fsdp2", cuda=False, flash=False)
    assert c.actor_rollout_ref.actor.ppo_infer_max_token_len_per_gpu == tokens


def test_megatron_has_its_own_settings():
    assert settings.mistakes({"actor": {"megatron": {"tensor_model_parallel_size": 2}}}, "megatron") == []
    (found,) = settings.mistakes({"actor": {"megatron": {"tensor_model_parallel_size": 2}}}, "fsdp2")
    assert "megatron is unknown" in found["detail"]
    c = settings.merged(
        {"actor": {"megatron": {"tensor_model_parallel_size": 2}}}, BLOCK, "megatron", cuda=True, flash=True
    )
    assert c.actor_rollout_ref.actor.megatron.tensor_model_parallel_size == 2


@pytest.mark.parametrize(("given", "setting"), [
    ({"actor": {"ppo_epochs": 2, "loss_agg_mode": "nope"}}, "config.actor.loss_agg_mode"),
    ({"actor_rollout_ref": {"actor": {"loss_agg_mode": "nope"}}}, "config.actor_rollout_ref.actor.loss_agg_mode"),
    ({"actor": {"ppo_micro_batch_size_per_gpu": 2, "ppo_micro_batch_size": 2}}, "config.actor.ppo_micro_batch_size"),
    ({"actor": {"optim": {"lr_scheduler_type": "nope"}}}, "config.actor.optim"),  # an assertion without a word
    ({"actor": {"fsdp_config": {"strategy": "z"}}, "ref": {"fsdp_config": {"strategy": "fsdp2"}}},
     "config.actor.fsdp_config.strategy"),
])  # fmt: skip
def test_a_refusal_of_verls_dataclasses_has_a_place(given, setting):
    config = settings.merged(given, BLOCK, "fsdp2", cuda=False, flash=False)
    with pytest.raises(InstantiationException) as refused:
        omega_conf_to_dataclass(config.actor_rollout_ref.actor)
    key = str(refused.value).rpartition("full_key: ")[2]
    assert settings.named(str(refused.value.__cause__), given, key) == setting


def test_what_the_recipe_does_not_set_has_no_place():
    assert settings.named("Invalid loss_agg_mode: x", {"ref": {"loss_agg_mode": "x"}}, "actor_rollout_ref.actor") == ""
