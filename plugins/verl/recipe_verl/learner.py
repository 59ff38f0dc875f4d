"""One step of verl's training on a batch of recipe: as `fit` of verl's PPO trainer does it, without Ray around it.

On every rank the algorithm sees the whole batch, as verl's driver does; only the engine's passes are shared out. n
sequences, of responses that are padded on the right to R tokens."""

from __future__ import annotations

import inspect
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from omegaconf import DictConfig
from recipe_sdk import Batch, Bridge, ReadOptions
from recipe_sdk.errors import WorkerError
from torch import Tensor
from verl.trainer.ppo import core_algos, rollout_corr_helper
from verl.utils.config import omega_conf_to_dataclass
from verl.utils.metric import Metric
from verl.utils.tensordict_utils import get_tensordict
from verl.workers.engine import EngineRegistry
from verl.workers.utils.losses import ppo_loss
from verl.workers.utils.padding import response_from_nested

from .settings import named

CHECKS = ["Change config = { … } of the block."]


class Learner:
    """verl's engine of the policy, and one of the reference where a KL term needs it."""

    def __init__(self, config: DictConfig, bridge: Bridge[Any]):
        self.bridge, self.config, self.algorithm = bridge, config, config.algorithm
        self.actor = omega_conf_to_dataclass(config.actor_rollout_ref.actor)
        self.model = omega_conf_to_dataclass(config.actor_rollout_ref.model)
        self.correction = self.algorithm.rollout_correction
        self._names()
        self.kl = core_algos.get_kl_controller(self.algorithm.kl_ctrl)
        self.engine = self._engine(self.actor)
        self.ref, self.reference = self.actor, None
        if self._needs_reference() and not self.model.lora_rank:
            self.ref = omega_conf_to_dataclass(config.actor_rollout_ref.ref)
            self.reference = self._engine(self.ref)
        self.tokens: dict[str, Tensor] = {}  # of the last batch, [N] each: what was computed for its trained tokens
        self.dtype = next(p.dtype for _, p in self.named())
        # Its engines run under autocast; that of FSDP takes the precision of its mixed_precision.
        self.computes: torch.dtype = getattr(self.engine, "_autocast_dtype", torch.bfloat16)

    def _names(self) -> None:
        """Has verl look now for what the first step would ask it for, before the model is loaded."""
        one = torch.ones(1, 2)
        d = {"response_mask": one, "old_log_probs": one, "rollout_log_probs": one}
        try:
            core_algos.get_adv_estimator_fn(self.algorithm.adv_estimator)
            core_algos.get_policy_loss_fn(self.actor.policy_loss.loss_mode)
            for asked, name in ((self.actor.use_kl_loss, self.actor.kl_loss_type),
                                (self.algorithm.use_kl_in_reward, self.algorithm.kl_penalty)):  # fmt: skip
                if asked:
                    core_algos.kl_penalty(one, one, name)
            self._correct(d, {}, torch.ones(1, dtype=torch.bool))
        except (AssertionError, KeyError, NotImplementedError, TypeError, ValueError) as e:
            said = str(e) or "of a KL term: no such kl_loss_type or kl_penalty"
            setting = named(said, self.bridge.settings)
            raise WorkerError(f"verl refuses its configuration: {said}", CHECKS, "config", setting) from e

    def _needs_reference(self) -> bool:
        return bool(self.actor.use_kl_loss or self.algorithm.use_kl_in_reward)

    def _engine(self, role: Any) -> Any:
        engine = EngineRegistry.new(
            model_type="language_model", backend=role.engine.strategy, model_config=self.model,
            engine_config=role.engine, optimizer_config=self.actor.optim, checkpoint_config=role.checkpoint,
        )  # fmt: skip
        engine.initialize()
        return engine

    # ---- for the bridge ----

    def named(self) -> Iterator[tuple[str, Tensor]]:
        """Every weight as inference loads it; collective."""
        yield from self.engine.get_per_tensor_param()[0]

    def reading(self) -> ReadOptions:
        """Which groups can be trained on: bypass mode needs the sampler's log-probabilities."""
        data = self.bridge.block.data
        return ReadOptions(
            data.max_length, data.max_prompt_length, data.max_response_length,
            need_logprobs=bool(self.correction.bypass_mode),
        )  # fmt: skip

    def tied(self) -> dict[str, str]:
        """verl streams a tied head as a weight of its own."""
        if not self.model.share_embeddings_and_output_weights:
            return {}
        return dict(getattr(getattr(self.engine, "module", None), "all_tied_weights_keys", None) or {})

    def save(self, folder: Path) -> None:
        """verl's shards, and the model as transformers loads it."""
        self.engine.save_checkpoint(str(folder / "verl"))
        self.bridge.save_model(folder)

    def load(self, folder: Path, state: dict[str, Any]) -> None:
        """Weights, optimizer, schedule and random state of a checkpoint."""
        self.engine.load_checkpoint(str(folder / "verl"), del_local_after_load=False)
        self.kl.value = state["kl_coefficient"]

    def state(self) -> dict[str, Any]:
        """What a checkpoint keeps besides."""
        return {"kl_coefficient": float(self.kl.value)}

    def move(self, device: str) -> None:
        """The optimizer's state out of a shared GPU, or back. With verl's own offload it is there in a step only."""
        if not self.engine.is_optimizer_offload_enabled:
            self.engine.to(device, model=False, optimizer=True, grad=False)

    def logprobs(self, ids: Tensor, temperature: float) -> Tensor:
        """[L - 1] of ids[0, 1:]; every rank computes all of them."""
        one = {"input_ids": [ids[0]], "position_ids": [torch.arange(ids.shape[1])], "prompts": [ids[0, :1]],
               "responses": [ids[0, 1:]], "response_mask": [torch.ones(ids.shape[1] - 1)]}  # fmt: skip
        return self._infer(self.engine, self._data(one, [0], temperature=temperature, micro_batch_size_per_gpu=1))[0]

    # ---- a step ----

    def step(self, batch: Batch) -> dict[str, float] | None:
        """Trains one batch, in as many optimizer steps as its groups make mini-batches of verl's size; metrics. None:
        the correction has rejected every token, so nothing was trained."""
        began, n = time.perf_counter(), len(batch)
        rows = {k: list(v.unbind()) for k, v in batch.fill(n + 1).nested().items()}  # the last one trains nothing
        rows["temperature"] = list(batch.fill(n + 1).temperature.unbind())
        d = {k: pad(rows[k][:n]) for k in ("response_mask", "old_log_probs", "advantages")}
        d["rollout_log_probs"] = d["old_log_probs"]
        metrics: dict[str, Any] = {}
        trained, self.tokens = d["response_mask"].bool(), {}
        if not self.correction.bypass_mode:
            d["old_log_probs"] = self._old(rows, n, d, metrics, batch.has_logprobs)
            self.tokens["logprobs"] = d["old_log_probs"][trained]
        if self._needs_reference():
            d["ref_log_prob"] = pad(rows["ref_log_prob"][:n]) if "ref_log_prob" in rows else self._reference(rows, n)
        metrics["time/logprobs"] = time.perf_counter() - began
        self._correct(d, metrics, batch.has_logprobs)
        d["advantages"] = torch.where(
            batch.advantages_sent[:, None], d["advantages"], self._advantages(batch, d, metrics)
        )
        self.tokens["advantages"] = d["advantages"][trained]
        lengths = [len(r) for r in rows["responses"]]
        for name in ("response_mask", "old_log_probs", "advantages", "rollout_is_weights", "ref_log_prob"):
            if name in d:
                blank = torch.zeros(lengths[n])
                rows[name] = [d[name][i, : lengths[i]] for i in range(n)] + [blank]
        rows["loss_mask"] = rows["response_mask"]
        advantages = d["advantages"][d["response_mask"].bool()]
        if not len(advantages):
            return None
        metrics.update({"adv/mean": advantages.mean(), "adv/std": advantages.std(unbiased=False)})
        metrics.update(self._update(rows, batch))
        return {k: float(v) for k, v in metrics.items()}

    def _old(self, rows: dict, n: int, d: dict, metrics: dict, known: Tensor) -> Tensor:
        """Log-probabilities of the policy before the step, and how far the sampler's are from them."""
        old = pad(self._everywhere(self.engine, rows, n, self.actor))
        m = d["response_mask"].bool() & known[:, None]
        gap = (old - d["rollout_log_probs"])[m].abs()
        if len(gap):
            metrics.update(
                {"mismatch/mean_abs": gap.mean(), "mismatch/max_abs": gap.max(), "mismatch/tokens": len(gap)}
            )
        return old

    def _reference(self, rows: dict, n: int) -> Tensor:
        if self.reference is not None:
            return pad(self._everywhere(self.reference, rows, n, self.ref))
        with self.engine.disable_adapter():
            return pad(self._everywhere(self.engine, rows, n, self.actor))

    def _correct(self, d: dict, metrics: dict, known: Tensor) -> None:
        """Importance weights and rejection against the sampler, where its log-probabilities are known."""
        if self.correction.bypass_mode:
            return  # the loss does it, at each optimizer step
        names = ("is", "is_threshold", "is_batch_normalize", "rs", "rs_threshold")
        asked = {f"rollout_{k}": self.correction.get(f"rollout_{k}") for k in names}
        sampled = torch.where(known[:, None], d["rollout_log_probs"], d["old_log_probs"])  # unknown: a ratio of one
        weights, d["response_mask"], found = rollout_corr_helper.compute_rollout_correction_and_rejection_mask(
            d["old_log_probs"], sampled, d["response_mask"], **asked
        )
        if weights is not None:
            d["rollout_is_weights"] = weights.batch["rollout_is_weights"]
        metrics.update(found)

    def _advantages(self, batch: Batch, d: dict, metrics: dict) -> Tensor:
        """[n, R] by verl's registered estimator; 0 for sequences without a score, which are in no statistic."""
        algorithm = self.algorithm
        mask, scored = d["response_mask"], ~torch.isnan(batch.scores) & (d["response_mask"].sum(-1) > 0)
        out = torch.zeros_like(mask)
        if not scored.any():
            return out
        rewards = torch.zeros_like(mask)
        last = mask.shape[1] - 1 - mask.flip(1).argmax(1)
        rewards[torch.arange(len(mask)), last] = batch.scores.nan_to_num(0.0)
        if algorithm.use_kl_in_reward:
            divergence = core_algos.kl_penalty(d["old_log_probs"], d["ref_log_prob"], algorithm.kl_penalty) * mask
            rewards = rewards - self.kl.value * divergence
            mean = float((divergence.sum(-1) / mask.sum(-1).clamp(min=1)).mean())
            metrics.update({"kl/reward": mean, "kl/coefficient": self.kl.value})
            self.kl.update(current_kl=mean, n_steps=len(mask))
        estimator = core_algos.get_adv_estimator_fn(algorithm.adv_estimator)
        offered = {
            "token_level_rewards": rewards[scored], "response_mask": mask[scored],
            "index": np.array(batch.group[scored]), "old_log_probs": d["old_log_probs"][scored],
            "config": algorithm, "gamma": algorithm.gamma, "lam": algorithm.lam,
            "norm_adv_by_std_in_grpo": algorithm.norm_adv_by_std_in_grpo,
        }  # fmt: skip
        wanted = inspect.signature(estimator).parameters
        out[scored] = estimator(**{k: v for k, v in offered.items() if k in wanted})[0].to(out)
        return out * mask

    def _update(self, rows: dict, batch: Batch) -> dict[str, Any]:
        """verl's mini-batches: ppo_mini_batch_size counts prompts, so it is the groups of an optimizer step."""
        actor, n = self.actor, len(batch)
        parts = -(-batch.groups_total // actor.ppo_mini_batch_size)
        size = None if actor.use_dynamic_bsz else actor.ppo_micro_batch_size_per_gpu
        entropy = bool(actor.calculate_entropy or actor.entropy_coeff)
        shuffler = torch.Generator().manual_seed(actor.data_loader_seed + batch.number)
        found: list[dict[str, Any]] = []
        for _ in range(actor.ppo_epochs):
            order = torch.randperm(n, generator=shuffler) if actor.shuffle else torch.arange(n)
            for part in order.tensor_split(parts):
                mine = self._share(part.tolist(), rows, size)
                data = self._data(rows, mine, calculate_entropy=entropy, global_batch_size=len(part))
                with self.engine.train_mode():
                    found.append(self._read(self.engine.train_batch(data, partial(ppo_loss, config=actor))))
        out = {k: np.mean([f[k] for f in found if k in f]) for k in dict.fromkeys(k for f in found for k in f)}
        out.update({"learning_rate": self.engine.lr_scheduler_step(), "optimizer_steps": len(found)})
        return out

    def _read(self, output: dict[str, Any]) -> dict[str, float]:
        """An optimizer step's metrics over all ranks; those of micro-batches as verl puts them together."""
        mine = None
        if self.engine.is_mp_src_rank_with_outputs():
            values = {k: v.aggregate() if isinstance(v, Metric) else np.mean(v) for k, v in output["metrics"].items()}
            mine = {
                "loss/total": sum(output["loss"]),
                **{NAMES.get(k, f"verl/{k}"): float(v) for k, v in values.items()},
            }
        every = [m for m in self.bridge.ranks.gather(mine) if m is not None]
        return {k: float(np.mean([m[k] for m in every])) for k in every[0]}

    # ---- the engine's passes ----

    def _share(self, order: list[int], rows: dict, size: int | None) -> list[int]:
        """This rank's sequences: as many on each, in whole micro-batches, of like lengths; the last row fills up."""
        rank, world = self.engine.get_data_parallel_rank(), self.engine.get_data_parallel_size()
        size = size or 1
        per = -(-len(order) // (world * size)) * size
        order = sorted(order, key=lambda i: -len(rows["input_ids"][i]))
        mine = order[rank::world]
        return mine + [len(rows["input_ids"]) - 1] * (per - len(mine))

    def _everywhere(self, engine: Any, rows: dict, n: int, role: Any) -> list[Tensor]:
        """Log-probabilities of all responses, on every rank."""
        size = role.ppo_infer_micro_batch_size_per_gpu or role.ppo_micro_batch_size_per_gpu
        mine = self._share(list(range(n)), rows, None if role.use_dynamic_bsz else size)
        found = self._infer(engine, self._data(
            rows, mine, use_dynamic_bsz=role.use_dynamic_bsz, micro_batch_size_per_gpu=size,
            max_token_len_per_gpu=role.ppo_infer_max_token_len_per_gpu,
        ))  # fmt: skip
        by_row = dict(zip(mine, found, strict=True)) if engine.is_mp_src_rank_with_outputs() else {}
        every = {i: x for part in self.bridge.ranks.gather(by_row) for i, x in part.items()}
        return [every[i] for i in range(n)]

    def _infer(self, engine: Any, data: Any) -> list[Tensor]:
        with engine.eval_mode():
            output = engine.infer_batch(data)
        if not engine.is_mp_src_rank_with_outputs():
            return []
        found = output["model_output"]["log_probs"].float().cpu()
        return list(response_from_nested(found, data["response_mask"]).unbind())

    def _data(self, rows: dict, chosen: list[int], **facts: Any) -> Any:
        """What verl's engines read, of these rows."""
        actor, model = self.actor, self.model
        tensors = {k: nested([v[i] for i in chosen]) for k, v in rows.items() if k != "temperature"}
        tensors.setdefault("loss_mask", tensors["response_mask"])
        heat = [float(rows["temperature"][i]) for i in chosen] if "temperature" in rows else [1.0]
        same = len(set(heat)) == 1
        if not same:
            tensors["temperature"] = torch.tensor(heat)
        return get_tensordict(tensors, {
            **({"temperature": heat[0]} if same else {}), "use_dynamic_bsz": actor.use_dynamic_bsz,
            "max_token_len_per_gpu": actor.ppo_max_token_len_per_gpu,
            "micro_batch_size_per_gpu": actor.ppo_micro_batch_size_per_gpu, "calculate_entropy": False,
            "use_remove_padding": model.use_remove_padding, "use_fused_kernels": model.use_fused_kernels,
            "pad_token_id": model.hf_config.pad_token_id or 0, "global_batch_size": len(chosen), **facts,
        })  # fmt: skip


NAMES = {
    "actor/pg_loss": "loss/policy", "kl_loss": "loss/kl", "actor/entropy_loss": "entropy", "grad_norm": "grad_norm",
    "actor/pg_clipfrac": "clip/high", "actor/pg_clipfrac_lower": "clip/dual", "actor/ppo_kl": "kl/old",
}  # fmt: skip


def nested(rows: list[Tensor]) -> Tensor:
    """Jagged: rows of different lengths."""
    return torch.nested.as_nested_tensor(rows, layout=torch.jagged)


def pad(rows: list[Tensor]) -> Tensor:
    """[n, R], zeros on the right."""
    return torch.nn.utils.rnn.pad_sequence(rows, batch_first=True)
