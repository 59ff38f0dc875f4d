"""The run, top to bottom: load, resume, then batch after batch; commands are served between steps and while waiting."""

from __future__ import annotations

import dataclasses
import math
import time
from collections import Counter
from pathlib import Path
from typing import Any

import torch
from recipe_sdk import api
from recipe_sdk.aside import SetAside
from recipe_sdk.control import Control
from recipe_sdk.errors import CheckpointError, DataError, MismatchError
from recipe_sdk.events import Events
from recipe_sdk.feed import Feed
from recipe_sdk.groups import Group, GroupRejected, ReadOptions, read_group
from recipe_sdk.ipc import Shared, host, place
from recipe_sdk.nccl import Sender
from recipe_sdk.ranks import Ranks
from recipe_sdk.rollouts import Delivery, Rollouts, Spool

from . import batch, checkpoint, commands, config, metrics, model, objective, optim, turns
from .config import Config
from .memory import Memory
from .step import Stepper
from .weights import end_tokens


class Run:
    """One life of the trainer. Rank 0's feed decides what comes next; every rank carries it out."""

    def __init__(self, c: Config, ranks: Ranks, events: Events, control: Control | None):
        self.config, self.ranks, self.events, self.control = c, ranks, events, control
        self.step, self.version, self.cursor = 0, c.policy_version, -1
        self.synced_version = c.policy_version
        self.served = 0  # the step whose weights are the policy version; -1: unknown
        self.last: dict[str, Any] = {}
        self.feed: Feed | None = None
        self.shared, self.broadcast = Shared(), Sender()
        self.warned: set[str] = set()
        self.resumed = False
        self.aside: SetAside | None = None  # of rank 0

    def load(self) -> None:
        """Model, reference, optimizer; from the newest checkpoint when there is one."""
        c, ranks = self.config, self.ranks
        self.events.phase("loading", model=c.model.path)
        if c.threads:
            torch.set_num_threads(c.threads)
        found = ranks.share(checkpoint.newest(c.checkpoint_dir))
        if found is not None and not c.resume:
            raise CheckpointError(
                f"resume is false, and {found} is there: a later start would go on from it, not from this run",
                ["Set resume = true, or move the directory away, or use another checkpoint_dir."],
            )
        self.policy, summary = model.load_policy(c, ranks.device, ranks.world)
        if found is not None:
            checkpoint.load_weights(found, self.policy)
        self.reference = model.Reference(c, self.policy, ranks.device, ranks.mesh)
        if ranks.mesh is not None:
            model.shard(self.policy, c, ranks.mesh)
        optimizer = optim.build(c, self.policy.parameters())
        memory = Memory()
        torch.manual_seed(c.seed + 1)
        if found is not None:
            state = checkpoint.load_training(
                found, self.policy, optimizer, ranks.rank, ranks.world > 1, c.optimizer.name
            )
            memory = Memory.restore(state["memory"])
            self.step, self.version, self.cursor = state["step"], state["policy_version"], state["cursor"]
            self.last, self.synced_version, self.resumed = state["metrics"], state["policy_version"], True
            self.served = -1
            self.events.emit("resumed", checkpoint=str(found), step=self.step, policy_version=self.version)
        self.stepper = Stepper(c, self.policy, self.reference, optimizer, ranks, memory)
        self.eos = end_tokens(self.policy)
        self.vacate()
        self.note_state()
        summary["memory"], summary["machine"] = place(ranks.device), host()
        self.events.emit("loaded", reference=config.source_of(c), world=ranks.world, step=self.step, **summary)

    def connect(self) -> None:
        """Rank 0 registers with the trajectory API and settles what an earlier life had left there."""
        if not self.ranks.main:
            return
        c = self.config
        self.events.phase("connecting", url=api.shown(c.data.url))
        self.aside = SetAside(Path(c.checkpoint_dir) / "set-aside")
        spool = Spool(Path(c.checkpoint_dir) / "spool", self.cursor)
        if not c.resume:
            spool.clear()
        rollouts = Rollouts(c, self.events, spool)
        self.feed = Feed(c, self.events, self.control, rollouts)
        rollouts.connect(self.step)
        rollouts.report_version(self.version)
        if self.resumed and c.wait_for_sync:  # inference may serve anything: first it gets these weights
            self.feed.expect_sync(self.step, self.version)

    def loop(self) -> str:
        """Trains until the last step, a stop, or a solved task; returns which."""
        while True:
            kind, content = self.ranks.share(self.feed.decide(self.step >= self.config.steps) if self.feed else None)
            if kind == "command":
                commands.carry_out(self, *content)
            elif kind == "batch":
                self.train(content)
            elif kind == "fail":
                raise content
            elif kind in ("completed", "stopped", "solved"):
                self.finish(kind)
                return kind

    def vacate(self) -> None:
        """Where the device is shared, inference has it from now on."""
        if self.config.wait_for_grant:
            turns.vacate(self.stepper.optimizer, self.ranks.device, self.config.optimizer.offload)

    def train(self, delivery: Delivery) -> None:
        """One batch and the offer of its weights, which ends a turn on a shared device whatever came of the batch."""
        turns.occupy(self.stepper.optimizer, self.ranks.device, self.config.optimizer.offload)
        before = self.step
        self._train(delivery)
        self.vacate()
        c = self.config
        if (self.step > before and self.step % c.publish_every == 0) or c.wait_for_grant:
            self.events.emit("weights", ready=True, step=self.step, policy_version=self.version)
            if c.wait_for_sync and self.feed:
                self.feed.expect_sync(self.step, self.version)

    def _train(self, delivery: Delivery) -> None:
        """Read, train, report, save."""
        c, clock = self.config, metrics.Clock(self.ranks.device)
        self.events.phase("training", batch=delivery.number, replayed=delivery.replayed)
        groups, facts = self._read(delivery)
        if not any(c.positions for g in groups for c in g.completions):
            self._skip(delivery, "no group of it can be trained", facts)
            return
        data = batch.build(groups)
        started = time.perf_counter()
        try:
            version = self.version if self.served == self.step else None  # trained since, they are nobody's
            report = self.stepper.train(data, self.step, clock, version)
        except MismatchError:
            if self.feed:  # whoever restarts this run after a remedy must not meet the same batch again
                self.feed.rollouts.spool.refuse(delivery.number)
            raise
        times = clock.metrics()  # on a GPU this waits for the last of the step
        seconds = time.perf_counter() - started
        report.update(facts)
        for warning in report.pop("warnings"):
            if warning not in self.warned:
                self.warned.add(warning)
                self.events.emit("warning", message=warning)
        if report.get("absurd"):
            self._skip(delivery, "the sampler's log-probabilities cannot belong to these weights", report)
            return
        self.step, self.cursor = self.step + 1, delivery.number
        report.update(times)
        report.update(metrics.memory(self.ranks.device))
        report.update({"time/wait": delivery.waited, "time/step": seconds, "step": float(self.step),
                       "tokens/per_second": data.total_tokens / seconds})  # fmt: skip
        peak = metrics.peak(self.ranks.device, c.peak_tflops)
        if peak:
            model_config, full = self.policy.causal.config, not self.policy.adapted
            work = metrics.flops(model_config, self.stepper.count, data, full, c.data.epochs)
            report["mfu"] = work / seconds / (peak * self.ranks.world)
        self.last = report
        self.note_state()
        self.events.emit("metric", step=self.step, policy_version=self.version, batch=delivery.number, metrics=report)
        self.events.emit("progress", step=self.step, steps=c.steps)
        if self.feed:
            self.feed.rewards.append(report.get("reward/mean", 0.0))
        if c.save_every and self.step % c.save_every == 0 and self.step < c.steps:
            self.save("interval")

    def _skip(self, delivery: Delivery, reason: str, facts: dict[str, Any]) -> None:
        """The batch is used up without a step."""
        self.cursor = delivery.number
        self.note_state()
        self.events.emit("skipped", batch=delivery.number, step=self.step, reason=reason, facts=facts)

    def _read(self, delivery: Delivery) -> tuple[list[Group], dict[str, Any]]:
        """The delivery's groups that may train, and what was left out and why; the same on every rank."""
        c = self.config
        options = ReadOptions(
            c.data.max_length, c.data.max_prompt_length, c.data.max_response_length, c.advantages.layout,
            objective.options(c).needs_behavior, config.source_of(c) == "data", c.correction.temperature,
            c.correction.mask_truncated, self.eos, self.policy.causal.config.vocab_size,
        )  # fmt: skip
        groups, refused, examples, stored = [], Counter(), {}, 0
        for raw in delivery.groups:
            try:
                groups.append(read_group(raw, options))
            except GroupRejected as e:
                if e.reason == "too_long" and c.data.overlong == "error":
                    checks = ["Raise data.max_length, or lower the environment's.", "Or set data.overlong = reject."]
                    raise DataError(str(e), checks) from e
                refused[e.reason] += 1
                examples.setdefault(e.reason, str(e))
                if self.aside:
                    stored += self.aside.keep(delivery.number, raw, f"{e.reason}: {e}")
        facts: dict[str, Any] = {f"rejected_groups/{k}": float(v) for k, v in refused.items()}
        facts["rejected_groups/total"] = float(sum(refused.values()))
        if refused:
            where = str(self.aside.directory) if stored else None
            reasons = dict(refused)
            self.events.emit("rejected", batch=delivery.number, reasons=reasons, examples=examples, set_aside=where)
        facts.update(metrics.describe_staleness([g.versions for g in groups], self.version))
        limit = c.data.max_staleness
        fresh = [g for g in groups if limit is None or g.versions is None or self.version - g.versions[0] <= limit]
        facts["staleness/dropped_groups"] = float(len(groups) - len(fresh))
        kept = fresh
        if c.advantages.drop_equal_scores:
            kept = [g for g in fresh if len({x.score for x in g.completions if not math.isnan(x.score)}) > 1
                    or (c.advantages.use_advantages and any(x.advantage for x in g.completions))]  # fmt: skip
        facts["groups/equal_dropped"] = float(len(fresh) - len(kept))
        return kept, facts

    def use(self, c: Config) -> None:
        """Takes over live settings."""
        self.config = self.stepper.config = c
        for policy in filter(None, (self.policy, self.reference.copy)):
            policy.head_options = dataclasses.replace(policy.head_options, chunk=c.model.head_chunk)
        if self.feed:
            self.feed.config = self.feed.rollouts.config = c
        self.note_state()

    def note_state(self) -> None:
        """What GET /state shows."""
        self.events.state.update(
            step=self.step, steps=self.config.steps, policy_version=self.version, synced_version=self.synced_version,
            metrics=self.last, batch=self.cursor,
        )  # fmt: skip

    def save(self, why: str) -> str | None:
        """A checkpoint of now; rank 0 gets its path."""
        before = self.events.state["phase"]
        self.events.phase("checkpointing", why=why)
        public = dataclasses.asdict(self.config)
        public["data"].pop("token")
        public.pop("control_token")
        state = {
            "step": self.step, "policy_version": self.version, "cursor": self.cursor, "metrics": self.last,
            "memory": self.stepper.memory.state(), "world": self.ranks.world, "config": public,
        }  # fmt: skip
        optimizer, ranks = self.stepper.optimizer, self.ranks
        try:
            path = checkpoint.save(
                self.config, self.policy, optimizer, state, rank=ranks.rank, sharded=ranks.world > 1,
                gather=ranks.gather,
            )  # fmt: skip
        except Exception:
            self.events.phase(before)  # whoever asked for it is told; the run goes on where it was
            raise
        if path is not None:
            if self.feed:
                self.feed.rollouts.spool.covered(self.cursor)
            self.events.state["checkpoint"] = str(path)
            self.events.emit("checkpoint", path=str(path), step=self.step, why=why, policy_version=self.version)
        self.events.phase(before)
        return str(path) if path else None

    def finish(self, reason: str) -> None:
        """The last checkpoint, unless this very step has one, and the answer to a stop."""
        newest = checkpoint.newest(self.config.checkpoint_dir) if self.ranks.main else None
        have = self.ranks.share(newest is not None and newest.name == f"step_{self.step}")
        if self.step and not have:
            self.save(reason)
        self.events.phase("done", reason=reason)
        if self.feed:
            self.feed.answer({"step": self.step, "checkpoint": self.events.state.get("checkpoint")})
