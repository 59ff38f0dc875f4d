"""The run, top to bottom: load, attach to the bridge, then batch after batch."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import torch
from recipe_sdk import Bridge, Checkpoint, GroupBatch, ReadOptions, stage
from recipe_sdk.errors import MismatchError
from recipe_sdk.fields import ConfigError, changed
from recipe_sdk.groups import Group, differ
from torch import Tensor

from . import (
    batch,
    checkpoint,
    checks,
    compiled,
    config,
    early,
    float8,
    host,
    metrics,
    model,
    objective,
    optim,
    replay,
    teacher,
    turns,
    weights,
)
from .batch import Batch, Row
from .config import Config
from .memory import Memory
from .spread import check_equal, put
from .step import Stepper


class Trainer:
    """Learning, on the bridge: what a batch does to the policy."""

    def __init__(self, bridge: Bridge[Config], before: model.Built | None = None):
        """Model, reference, optimizer; from the newest checkpoint when there is one. before: the model, where it was
        built in host memory while inference started."""
        self.bridge, c, ranks = bridge, bridge.block, bridge.ranks
        found = bridge.resume()
        bridge.begin()  # the first batch is sampled while the model is put on the device and compiled
        mesh = None

        def place(policy: model.Policy) -> None:
            nonlocal mesh
            if found is not None:
                checkpoint.load_weights(found.path, policy)
            mesh, how = put(policy, c, ranks)
            if how:
                bridge.events.emit("decided", what="where the model lies", reason=how)

        self.policy, summary = model.load_policy(c, ranks.device, before, place)
        bridge.events.emit("decided", what="model on its device", reason=summary["loading"])
        served = teacher.Teacher(
            lambda: self.config.reference, lambda text: bridge.events.emit("warning", message=text)
        )
        self.reference = model.Reference(c, self.policy, ranks.device, mesh, served)
        if apart := summary["one_sequence_a_row"] or self.reference.apart:
            bridge.events.emit("decided", what="rows of one sequence", reason=apart)
        if products := summary["float8"]:
            bridge.events.emit("decided", what="float8", reason=products)
        self.optimizer = optim.build(c, self.policy.parameters())
        memory = Memory()
        torch.manual_seed(c.seed + 1)
        random.seed(c.seed + 1)  # a file of the user's may draw from it
        if found is not None:
            memory = self._continue(found)
        self.stepper = Stepper(c, self.policy, self.reference, self.optimizer, ranks, memory, bridge.settle)
        fixed = ranks.device.type == "cuda" and not self.policy.sharded  # shards are gathered anew each time
        self.proof = replay.Replay(self.policy, ranks.device, replay.record if fixed else None)
        self.eos = weights.end_tokens(self.policy)
        if c.correction.mask_truncated and not self.eos:
            raise model.ModelError(
                "correction.mask_truncated: the model's configuration names no end token, so that nothing tells which "
                "completions are truncated",
                ["Add eos_token_id to the model's generation_config.json, or leave mask_truncated out."],
            )
        self.warm = False  # whether what is compiled has been compiled
        self.left_out = 0  # batches in a row that came to no optimizer step
        if bridge.block.prepare:  # while inference starts
            host.calm(bridge.device, c.threads)
            self.warm_up()
        self._attach({"reference": config.source_of(c), **summary})

    @property
    def config(self) -> Config:
        """The settings of now; live ones change."""
        return self.bridge.block

    def _continue(self, found: Checkpoint) -> Memory:
        c, ranks = self.config, self.bridge.ranks
        sharded = bool(self.policy.sharded)
        checkpoint.load_training(found, self.policy, self.optimizer, ranks.rank, sharded, c.optimizer.name)
        return Memory.restore(found.state["memory"])

    def _attach(self, summary: dict[str, Any]) -> None:
        policy = self.policy
        trained = [p.dtype for p in policy.parameters() if p.requires_grad]
        self.bridge.attach(
            named=partial(weights.merged, policy), logprobs=self.logprobs, save=self.save,
            storage=None if policy.sharded else lambda: dict(policy.causal.named_parameters()),
            adapter=self.adapter if policy.adapted else None,
            adapter_config=partial(weights.write_adapter_config, policy) if policy.adapted else None,
            config=partial(weights.write_config, policy), tied=weights.tied(policy),
            trained=max(trained, key=lambda d: torch.finfo(d).bits), update=self.update,
            state=lambda: {"memory": self.stepper.memory.state()},
            sleep=lambda: turns.vacate(self.bridge.device, self.optimizer), reading=self.reading, select=self.select,
            summary=summary, ahead=True,
        )  # fmt: skip

    def loop(self) -> None:
        """Trains until the last step, a stop, or a solved task."""
        batches = self.bridge.batches(build)
        self.bridge.connect()  # a run that continues offers its weights before it compiles
        host.calm(self.bridge.device, self.config.threads)
        self.warm_up()
        host.settle(self.bridge.device)
        for b in batches:
            self.train(b)

    def warm_up(self) -> None:
        """Compiles the model, once: while inference starts, if the block is prepared, else while the first batch is
        sampled."""
        if self.warm:
            return
        self.warm = True
        why_not = self.stepper.sizing.uncompiled or compiled.unavailable(self.bridge.device)
        if why_not and not self.config.model.compile:
            return
        self.bridge.begin()
        before = compiled.last_time(self.policy)
        self.bridge.events.phase("compiling", for_what=f"the first step ({before:.0f} s last time)" if before else "")
        random_states = checkpoint.rng_state()  # dropout draws; a run that continues has its own states by now
        beside = self.bridge.block.prepare == stage.BESIDE
        try:
            took = self.stepper.warm_up(self.config, early.LATER if beside else 0)
            self.warm = took is not None
            if took is not None:
                compiled.note_time(self.policy, took)
        except Exception as e:
            if beside and isinstance(e, torch.OutOfMemoryError):  # inference took more than was left to it
                self.warm = False
                torch.cuda.empty_cache()
                return
            if self.config.model.compile:
                raise
            self.stepper.sizing.refuse_compiler(f"{type(e).__name__}: {str(e).splitlines()[0][:200]}")
        finally:
            checkpoint.set_rng_state(random_states)

    def train(self, b: Batch) -> None:
        """One batch: train, report."""
        c, bridge, clock = self.config, self.bridge, metrics.Clock(self.bridge.device)
        started = time.perf_counter()
        try:
            report = self.stepper.train(b, bridge.step, clock, bridge.served_version)
        except MismatchError:
            bridge.refuse()  # whoever restarts this run after a remedy must not meet the same batch again
            raise
        times = clock.metrics()  # on a GPU this waits for the last of the step
        seconds = time.perf_counter() - started
        warnings = report.pop("warnings")
        for reason in self.stepper.notes:
            bridge.events.emit("decided", what="how a step runs", reason=reason)
        self.stepper.notes.clear()
        if report.get("absurd"):
            bridge.skipped("the sampler's log-probabilities cannot belong to these weights", report)
            return
        report.update(times)
        report.update({**metrics.memory(bridge.device), **self.stepper.sizing.report()})
        report.update({"time/step": seconds, "tokens/per_second": b.total_tokens / seconds})
        peak = metrics.peak(bridge.device, c.peak_tflops)
        if peak:
            model_config, full = self.policy.causal.config, not self.policy.adapted
            work = metrics.flops(model_config, self.stepper.count, b, full, c.data.epochs)
            report["mfu"] = work / seconds / (peak * bridge.world)
        bridge.settle()  # it came to no optimizer step
        bridge.stepped(report, warnings, **self.stepper.tokens)
        self.left_out = checks.left_out(report, self.left_out)

    # ---- what the bridge calls ----

    def reading(self) -> ReadOptions:
        """Limits and conventions when groups are read."""
        c = self.config
        return ReadOptions(
            c.data.max_length, c.data.max_prompt_length, c.data.max_response_length, c.advantages.layout,
            objective.options(c).needs_behavior, config.source_of(c) == "data", c.correction.temperature,
            c.correction.mask_truncated, self.eos, self.policy.causal.config.vocab_size, c.rollout_parts,
        )  # fmt: skip

    def select(self, groups: list[Group]) -> tuple[list[Group], dict[str, float]]:
        """Leaves out groups of equal scores, where that is asked for."""
        a, kept = self.config.advantages, groups
        if a.drop_equal_scores:
            kept = [g for g in groups if differ([x.score for x in g.completions])
                    or (a.use_advantages and any(len(x.advantage) for x in g.completions if x.advantage is not None))
                    ]  # fmt: skip
        return kept, {"groups/equal_dropped": float(len(groups) - len(kept))}

    @torch.no_grad()
    def logprobs(self, ids: Tensor, temperature: float) -> Tensor:
        """[L - 1] log-probabilities of ids[0, 1:] (1, L) under the current weights."""
        temperature = 1.0 if self.config.correction.logprobs_mode == "raw" else temperature
        row = batch.whole_row(ids[0], temperature)

        def forward(row: Row) -> Tensor:
            with self.policy.uncompiled(), float8.exact(self.policy.parts):  # inference does not round as training does
                return self.policy(row).lp

        self.policy.eval()
        try:
            return self.proof(row, forward)
        finally:
            model.reshard(self.policy)

    def adapter(self) -> Iterator[tuple[str, Tensor]]:
        """The adapter, for inference that calculates with it beside the weights: so does training from then on, unless
        configured otherwise. In 16 bits the two differ by what the sum is rounded by."""
        policy = self.policy
        if policy.merged and self.config.lora.merged is None:
            policy.merged.undo()
            policy.merged = None
            self.bridge.events.emit("decided", what="adapters beside the weights", reason="inference calculates so")
        return weights.adapter(policy)

    def save(self, folder: Path) -> None:
        """A checkpoint that transformers loads, with the optimizer's and the random states."""
        check_equal(self.policy, self.bridge.ranks)
        checkpoint.write(self.config, self.policy, self.optimizer, folder, self.bridge.ranks)

    def update(self, change: dict[str, Any]) -> Config:
        """Takes over live settings."""
        before, new = self.config, config.update(self.config, change)
        if self.reference.source == "none" and config.source_of(new) != "none":
            raise ConfigError("this run was started without a reference policy; only a restart can turn a KL term on")
        self.stepper.config = new
        self.stepper.sizing.choice = None  # row_tokens and head_chunk: decided anew with the next batch
        names = [n for n, _ in changed(before, new)]
        if "kl.reward_coefficient" in names:  # what was adapted from the old one gives way
            self.stepper.memory.kl_reward = None
        if "entropy.coefficient" in names:
            self.stepper.memory.entropy = None
        return new


def build(taken: GroupBatch) -> Batch:
    """What the bridge yields to this trainer."""
    return batch.build(taken.groups)
