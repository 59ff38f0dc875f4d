"""What makes a GRPOTrainer train the batches of a bridge.

    class Trainer(Bridged, GRPOTrainer): ...

    run(Trainer(model=..., args=..., bridge=bridge))

TRL asks for samples in one method, `_generate_and_score_completions`. Here it takes the bridge's next batch instead.
What it returns are TRL's own tensors, so that micro-batches, losses, KL, clipping, optimizers and sharding are TRL's.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
from datetime import timedelta
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from packaging.version import Version
from torch import Tensor

from .. import causal, dtypes, products
from ..batch import Batch
from ..bridge import Bridge
from ..checkpoint import Checkpoint
from ..errors import DataError
from ..fields import ConfigError
from ..groups import ReadOptions
from ..ranks import alone
from ..weights import save_tokenizer
from .estimate import advantages, importance
from .report import names

SCALED = ("grpo", "sapo", "dr_grpo", "luspo")  # losses that are a mean over the rows of a micro-batch
LUSPO = Version("1.16.0")  # the first TRL in which that loss is known to sum over tokens, whatever their advantages


class Ended(Exception):
    """No batch comes any more: the steps are done, or the run was stopped."""


class Bridged:
    """Comes before a GRPOTrainer among the bases of a class. old_policy: what ratios are against, the "trainer" before
    the step (then the sampler's log-probabilities correct the loss, as TRL does with vLLM) or the "rollout"."""

    if TYPE_CHECKING:  # what GRPOTrainer has

        def __getattr__(self, name: str) -> Any: ...

    def __init__(self, *given: Any, bridge: Bridge[Any], old_policy: str = "trainer", **more: Any):
        from datasets import IterableDataset

        self.bridge, self.old_policy = bridge, old_policy
        self.found: Checkpoint | None = bridge.resume()
        self.logged: list[dict[str, float]] = []
        self.facts: dict[str, float] = {}
        self.tokens: dict[str, Tensor] = {}  # [N] each: what was computed for the trained tokens of the batch
        self.padding = 1.0
        dummies = IterableDataset.from_generator(lambda: iter(lambda: {"prompt": ""}, None))
        super().__init__(*given, **{**more, "reward_funcs": [_no_reward], "train_dataset": dummies})
        a, self.shuffle_dataset = self.args, False
        if (found := self.accelerator.num_processes) != bridge.world:  # each would train its share of a batch alone
            raise ConfigError(f"the trainer's accelerate has {found} process(es), while {bridge.world} were started")
        if a.loss_type == "luspo" and Version(version("trl")) < LUSPO:
            raise ConfigError(f"loss_type: luspo of TRL {version('trl')} averages over the width of a row, since "
                              f"advantages are given for each token: install trl {LUSPO} or newer",
                              "config.loss_type")  # fmt: skip
        a.ignore_data_skip = True  # the bridge knows which batch is next
        a.dataloader_prefetch_factor = None  # of workers, of which there are none
        self.per_batch = a.steps_per_generation * a.num_iterations // a.gradient_accumulation_steps
        # TRL corrects its loss for the sampler's log-probabilities where vLLM sampled. No server was started for it.
        self.use_vllm = a.vllm_importance_sampling_correction and old_policy == "trainer"
        attach_callbacks(self)
        self._attach()

    def _attach(self) -> None:
        model = self.model
        adapted = hasattr(model, "peft_config")
        if adapted and (layer := causal.unmergeable(model)):
            raise ConfigError(f"adapters of {layer}, cannot be merged into its weights for inference: use plain LoRA")
        trained = [p.dtype for p in model.parameters() if p.requires_grad]
        computes = self._computes()
        products.check(model, self.bridge.device, computes)
        whole = self.accelerator.distributed_type.value in ("NO", "MULTI_GPU", "MULTI_CPU")
        self.bridge.attach(
            named=lambda: causal.named(self._plain()), logprobs=self._logprobs, save=self._save_into,
            storage=(lambda: dict(causal.base(self._plain()).named_parameters())) if whole else None,
            adapter=(lambda: causal.adapter(self._plain())) if adapted else None,
            adapter_config=(lambda out: causal.write_adapter_config(self._plain(), out)) if adapted else None,
            config=lambda out: causal.write_config(self._plain(), out), tied=causal.tied(model),
            trained=max(trained, key=lambda d: torch.finfo(d).bits), reading=self._reading,
            sleep=torch.cuda.empty_cache if self.bridge.device.type == "cuda" else lambda: None,
            summary={
                "parameters": sum(p.numel() for p in model.parameters()), "device": str(self.accelerator.device),
                "trained_parameters": sum(p.numel() for p in model.parameters() if p.requires_grad),
                "dtype": dtypes.name(trained[0]), "compute_dtype": dtypes.name(computes),
                "sharding": self.accelerator.distributed_type.value,
            },
        )  # fmt: skip
        if adapted and (names := causal.unadapted(model)):
            self.bridge.events.emit("warning", message=f"no layer of the model is called {', '.join(names)}, of "
                                    "target_modules: adapters are in the others only")  # fmt: skip
        self.batches = self.bridge.batches(partial(Batch.build, estimate=partial(advantages, scale=self.scale_rewards)))

    # ---- from a batch to TRL's tensors ----

    def _generate_and_score_completions(self, inputs: Any) -> dict[str, Tensor]:
        batch = next(self.batches, None)
        if batch is None:
            raise Ended
        return self._tensors(batch)

    def _tensors(self, batch: Batch) -> dict[str, Tensor]:
        """This rank's part of a batch as _generate_and_score_completions returns it. Ranks get rows balanced by tokens,
        filled up with rows that train nothing until all micro-batches are of one size."""
        from transformers import set_seed

        bridge, a, device = self.bridge, self.args, self.accelerator.device
        different = batch.temperature[(batch.temperature - self.temperature).abs() > 1e-6]
        if len(different):
            text = f"sampled at temperature {different[0]:g}, while TRL divides all logits by {self.temperature:g}"
            raise DataError(text, ["Set temperature in config to what the environments sample at, one value for all."])
        # Whatever is random in a step depends on its number: a step that is trained again after a crash is the same.
        set_seed(a.seed + batch.step * bridge.world + bridge.rank)
        parts = [batch.share(r, bridge.world) for r in range(bridge.world)]
        rows = -(-max(map(len, parts)) // a.steps_per_generation) * a.steps_per_generation
        self.padding = rows * bridge.world / batch.sequences_total
        mine = parts[bridge.rank].fill(rows)
        pad = self.processing_class.pad_token_id
        t = {k: v.to(device) for k, v in mine.padded(0 if pad is None else pad).items()}
        out = {k: t[k] for k in ("prompt_ids", "prompt_mask", "completion_ids", "completion_mask", "advantages")}
        out["tool_mask"] = t["trained"]
        out["num_items_in_batch"] = torch.tensor(batch.trained_total, device=device)
        sampled = t["inference_logprobs"]
        out["sampling_per_token_logps"] = sampled
        with torch.no_grad():
            aligned = a.gradient_accumulation_steps % (a.steps_per_generation * a.num_iterations) == 0
            if self.old_policy == "rollout":
                out["old_per_token_logps"] = sampled
            elif self.use_vllm or not aligned:
                out["old_per_token_logps"] = self._scores(self.model, out)
            if self.use_vllm:
                known = t["trained"] * mine.has_logprobs.to(device)[:, None]
                difference = (out["old_per_token_logps"] - sampled) * known
                out["importance_sampling_ratio"] = importance(
                    difference, a.vllm_importance_sampling_mode, a.vllm_importance_sampling_clip_min,
                    a.vllm_importance_sampling_clip_max,
                )  # fmt: skip
                self.facts = self._mismatch(difference, known)
            if self.beta:
                out["ref_per_token_logps"] = self._reference(out)
        self.tokens = {"advantages": batch.advantages[batch.trained]}
        if self.old_policy == "trainer" and "old_per_token_logps" in out:
            self.tokens["logprobs"] = self._whole(batch, out["old_per_token_logps"][t["trained"].bool()])
        return out

    def _whole(self, batch: Batch, mine: Tensor) -> Tensor:
        """[N] over the batch's trained tokens, of what every rank has for those of its own sequences."""
        world, out = self.bridge.world, torch.zeros(batch.trained_total)
        place = batch.trained.long().cumsum(0) - 1  # in the result, of each token
        for rank, found in enumerate(self.bridge.ranks.gather(mine.float().cpu())):
            index = batch.index(batch.members(rank, world))
            out[place[index[batch.trained[index]]]] = found
        return out

    def _scores(self, model: Any, t: dict[str, Tensor]) -> Tensor:
        """float32 [n, C]: log-probabilities of the completions' tokens."""
        ids = torch.cat([t["prompt_ids"], t["completion_ids"]], 1)
        mask = torch.cat([t["prompt_mask"], t["completion_mask"]], 1)
        width, rows = t["completion_ids"].shape[1], self.args.per_device_train_batch_size
        found: Tensor = self._get_per_token_logps_and_entropies(model, ids, mask, width, batch_size=rows)[0]
        return found

    def _reference(self, t: dict[str, Tensor]) -> Tensor:
        if self.ref_model is not None:
            return self._scores(self.ref_model, t)
        with self.accelerator.unwrap_model(self.model).disable_adapter():
            return self._scores(self.model, t)

    def _mismatch(self, difference: Tensor, known: Tensor) -> dict[str, float]:
        """How far the sampler's log-probabilities are from those of the trained weights, over all ranks."""
        gap = difference.abs()
        total = self.accelerator.reduce(torch.stack([gap.sum(), known.sum().to(gap)]), reduction="sum")
        most = float(self.accelerator.gather(gap.max()).max())
        return {"mismatch/mean_abs": float(total[0] / total[1].clamp(min=1.0)), "mismatch/max_abs": most}

    def compute_loss(self, *given: Any, **more: Any) -> Tensor:
        """TRL's loss. A mean over rows counts those that fill a batch up; what they took is given back."""
        loss: Tensor = super().compute_loss(*given, **more)  # type: ignore[misc]
        return loss * self.padding if self.loss_type in SCALED else loss

    # ---- what the bridge calls ----

    def _plain(self) -> Any:
        """The model without what accelerate wrapped around it."""
        return self.accelerator.unwrap_model(self.model, keep_torch_compile=False)

    def _computes(self) -> torch.dtype:
        """The precision of its arithmetic: autocast's, else the coarsest of a weight."""
        mixed = {"bf16": torch.bfloat16, "fp16": torch.float16}.get(self.accelerator.mixed_precision)
        floating = (p.dtype for p in self.model.parameters() if p.is_floating_point())
        return mixed or min(floating, key=lambda d: torch.finfo(d).bits)

    @torch.no_grad()
    def _logprobs(self, ids: Tensor, temperature: float) -> Tensor:
        model = self.model_wrapped
        training = model.training
        model.eval()
        try:
            with self.accelerator.autocast():
                logits = model(input_ids=ids.to(self.accelerator.device), use_cache=False).logits
        finally:
            model.train(training)
        every = (logits[0, :-1].float() / temperature).log_softmax(-1)
        found: Tensor = every.gather(-1, ids[0, 1:, None].to(every.device)).squeeze(-1)
        return found

    def _reading(self) -> ReadOptions:
        data, config = self.bridge.block.data, causal.base(self._plain()).config.get_text_config()
        return ReadOptions(
            data.max_length, data.max_prompt_length, data.max_response_length, "auto", self.old_policy == "rollout",
            False, self.temperature, self.mask_truncated_completions, causal.end_tokens(self._plain()),
            config.vocab_size,
        )  # fmt: skip

    def _save_into(self, folder: Path) -> None:
        """TRL's own checkpoint. Of whole weights it is the folder itself, which inference loads as it stands; beside
        the folder `trainer` of any other (adapters, shards) the merged model is written."""
        ranks, below = self.bridge.ranks, folder / "trainer"
        before, self.args.output_dir = self.args.output_dir, str(below)
        try:
            ranks.agree(lambda: self._save_checkpoint(self.model, None))
        finally:
            self.args.output_dir = before
        whole = [False]

        def arrange() -> None:
            if not self.bridge.main:
                return
            (made,) = below.glob("checkpoint-*")
            whole[0] = any(made.glob("model*.safetensors"))
            for entry in list(made.iterdir()):
                os.replace(entry, (folder if whole[0] else below) / entry.name)
            made.rmdir()
            if whole[0]:
                shutil.rmtree(below)
                save_tokenizer(folder, self.bridge.block.model.path)

        ranks.agree(arrange)
        if not ranks.share(whole[0]):
            self.bridge.save_model(folder)

    def report(self, logs: dict[str, float]) -> None:
        """TRL has logged an optimizer step. The batch is stepped when that was its last."""
        self.logged.append(logs)
        if len(self.logged) < self.per_batch:
            return
        warnings = []
        if self.facts.get("mismatch/mean_abs", 0.0) > 1.0:
            warnings.append("the sampler's log-probabilities differ from the trainer's by more than 1 on average: does "
                            "inference serve this model, at this temperature?")  # fmt: skip
        found = {**names(self.logged), **self.facts, "optimizer_steps": float(self.per_batch)}
        self.logged, self.facts = [], {}
        self.bridge.stepped(found, warnings, **self.tokens)


def run(trainer: Any) -> None:
    """Trains until the last step, a stop, or a solved task."""
    found = trainer.found
    folder = None if found is None else found.path / "trainer" if (found.path / "trainer").is_dir() else found.path
    device = trainer.args.device
    if device.type == "cpu" and device.index is not None:  # accelerate 1.13 numbers CPUs, and torch.load knows one only
        trainer.args.__dict__["_setup_devices"] = torch.device("cpu")
    if trainer.args.deepspeed and not torch.distributed.is_initialized():
        os.environ.setdefault("LOCAL_RANK", "0")  # DeepSpeed refuses a process without
        alone("nccl" if device.type == "cuda" else "gloo", timedelta(seconds=trainer.args.ddp_timeout))
    with contextlib.suppress(Ended):
        trainer.train(resume_from_checkpoint=None if folder is None else str(folder))


def attach_callbacks(trainer: Any) -> None:
    """Has every optimizer step reported, and nobody but the bridge decide which step is the last."""
    from transformers import PrinterCallback, TrainerCallback

    class Report(TrainerCallback):
        """What transformers calls."""

        def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            """The number of steps may be raised while it trains. The schedule of the learning rate stays."""
            state.max_steps = sys.maxsize

        def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **_: Any) -> None:
            """After each optimizer step."""
            if logs and "loss" in logs:
                trainer.report(logs)

    trainer.remove_callback(PrinterCallback)
    trainer.add_callback(Report())


def _no_reward(**_: Any) -> list[float]:
    raise RuntimeError("rewards are the environments'; TRL asked for some")
