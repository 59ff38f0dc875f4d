"""Settings of verl's that do nothing beside others. verl does not speak of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

Get = Callable[[str], Any]
A, M, R = "actor_rollout_ref.actor.", "actor_rollout_ref.model.", "algorithm.rollout_correction."


def _reference(get: Get) -> bool:
    return bool(get(A + "use_kl_loss") or get("algorithm.use_kl_in_reward"))


# Names, or what they begin with; whether they are idle, by the value of any setting; why.
RULES: tuple[tuple[tuple[str, ...], Callable[[Get], Any], str], ...] = (
    ((A + "clip_ratio",), lambda get: get(A + "clip_ratio_low") is not None and get(A + "clip_ratio_high") is not None,
     "the losses of verl read clip_ratio_low and clip_ratio_high, which are 0.2 unless they are set. Set both"),
    ((A + "kl_loss_coef", A + "kl_loss_type"), lambda get: not get(A + "use_kl_loss"),
     "the loss has no KL term: actor.use_kl_loss is false"),
    (("algorithm.kl_penalty", "algorithm.kl_ctrl."), lambda get: not get("algorithm.use_kl_in_reward"),
     "no KL is taken off the rewards: algorithm.use_kl_in_reward is false"),
    (("actor_rollout_ref.ref.",), lambda get: not _reference(get),
     "nothing asks for a reference: actor.use_kl_loss and algorithm.use_kl_in_reward are false"),
    ((M + "lora_alpha", M + "target_modules", M + "exclude_modules", M + "target_parameters"),
     lambda get: not get(M + "lora_rank") and not get(M + "lora_adapter_path"),
     "all weights are trained: model.lora_rank is 0"),
    ((M + "lora.",), lambda get: get("backend") != "megatron",
     "it is of the Megatron engine. Set model.lora_rank, model.lora_alpha and model.target_modules"),
    ((R + "rollout_is_threshold", R + "rollout_is_batch_normalize"), lambda get: not get(R + "rollout_is"),
     "tokens have no importance weights: rollout_is is not set"),
    ((R + "rollout_rs_threshold",), lambda get: not get(R + "rollout_rs"),
     "nothing is rejected: rollout_rs is not set"),
    ((R + "loss_type",), lambda get: not get(R + "bypass_mode"), "it is of bypass_mode, which is off"),
    ((A + "ppo_micro_batch_size_per_gpu",), lambda get: get(A + "use_dynamic_bsz"),
     "micro-batches are filled by tokens: actor.use_dynamic_bsz is true"),
    ((A + "ppo_max_token_len_per_gpu",), lambda get: not get(A + "use_dynamic_bsz"),
     "micro-batches are counted in sequences: actor.use_dynamic_bsz is false"),
    ((A + "tau_pos", A + "tau_neg"), lambda get: get(A + "policy_loss.loss_mode") != "sapo",
     'it is of policy_loss = { loss_mode = "sapo" }'),
    ((A + "loss_scale_factor",), lambda get: get(A + "loss_agg_mode") != "seq-mean-token-sum-norm",
     'it is of loss_agg_mode = "seq-mean-token-sum-norm"'),
    ((A + "data_loader_seed",), lambda get: not get(A + "shuffle"), "the order is kept: actor.shuffle is false"),
    (("algorithm.gamma",), lambda get: get("algorithm.adv_estimator") in ("grpo", "rloo", "opo", "grpo_passk"),
     "this estimator gives all tokens of a sequence one advantage"),
    (("algorithm.lam",), lambda get: True, "it is of gae, which needs a critic"),
    (("algorithm.norm_adv_by_std_in_grpo",),
     lambda get: get("algorithm.adv_estimator") in ("rloo", "opo", "reinforce_plus_plus"),
     "this estimator does not divide by the deviation of a group"),
)  # fmt: skip


def idle(names: dict[str, Any], get: Get) -> Iterator[tuple[str, str]]:
    """Each of the names that does nothing, and why. names: what the recipe says that verl's defaults do not."""
    for name in names:
        for begins, holds, why in RULES:
            if any(name == one or (one.endswith(".") and name.startswith(one)) for one in begins) and holds(get):
                yield name, why
                break
