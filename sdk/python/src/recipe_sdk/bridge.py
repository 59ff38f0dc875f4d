"""One trainer's side of recipe. See docs/writing-trainers.md.

    bridge = Bridge.open("config.json")
    model = load(bridge.resume())
    bridge.attach(named=model.named_parameters, logprobs=..., save=...)
    for batch in bridge.batches():
        bridge.stepped({"loss/total": train(batch)})
    sys.exit(bridge.close())

Rank 0 speaks to the trajectory API and to the supervisor, the others follow: every method is a collective, which all
ranks call in the same order. One process needs no process group.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Generic, TypeVar, cast, overload

import torch
from torch import Tensor

from . import checkpoint, commands, settings, stage, weights
from .api import shown
from .batch import Batch, GroupBatch
from .checkpoint import Checkpoint
from .control import Command, Control
from .describe import describe_groups, describe_staleness
from .ending import report
from .errors import CheckpointError, DataError, Unwritable
from .events import Events
from .feed import Feed
from .files import free
from .groups import Group, GroupRejected, ReadOptions, read_group
from .hooks import Adapter, Hooks, Logprobs, Save, Select, Update, nothing
from .ipc import Named, Shared, Storage, host, place
from .nccl import Sender
from .ranks import Ranks, default_device
from .record import Recorder
from .rejected import RejectedGroups
from .rollouts import Delivery, Rollouts
from .settings import RunSettings, Settings
from .spool import Spool

S = TypeVar("S", bound=RunSettings)
B = TypeVar("B")


class Bridge(Generic[S]):
    """rank, world, main (whether this is rank 0) and device say which process this is. block holds the settings that
    every trainer has (block.model.path, block.steps, block.data.batch_size, ...), settings what is the trainer's own.
    step is the number of steps that are done, version the policy version that inference serves."""

    def __init__(self, block: S, ranks: Ranks, events: Events, control: Control | None):
        self.block, self.ranks, self.events, self.control = block, ranks, events, control
        self.step, self.version, self.cursor = 0, block.policy_version, -1
        self.served = 0  # the step whose weights are the policy version; -1: unknown
        self.published = (-1, -1)  # version and step of the last publication
        self.device_shared = block.wait_for_sync  # with inference, as far as the supervisor has said
        self.last: dict[str, Any] = {}  # metrics of the last step
        self.feed: Feed | None = None  # of rank 0, once connected
        self.ahead = False  # the weights were taken for inference, which may still load them
        self.shared, self.sender = Shared(), Sender()
        self.current: GroupBatch | None = None  # yielded, and neither stepped nor skipped yet
        self.reason = ""  # why batches ended: completed, stopped or solved
        self.resumed = False
        self._looked = False  # for a checkpoint
        self._hooks: Hooks | None = None
        self._aside: RejectedGroups | None = None
        self._recorder: Recorder | None = None  # of rank 0, once connected
        self._warned: set[str] = set()
        self._began = 0.0
        self._handlers: dict[int, Any] = {}

    @property
    def rank(self) -> int:
        """This process's number, from 0."""
        return self.ranks.rank

    @property
    def world(self) -> int:
        """How many processes train together."""
        return self.ranks.world

    @property
    def main(self) -> bool:
        """Whether this is rank 0, the one that reads and writes files and speaks to others."""
        return self.ranks.main

    @property
    def device(self) -> torch.device:
        """Where this rank computes."""
        return self.ranks.device

    @property
    def settings(self) -> dict[str, Any]:
        """`config = {…}` of the block, untouched."""
        return cast("dict[str, Any]", getattr(self.block, "config", {}))

    @property
    def hooks(self) -> Hooks:
        """What attach was given."""
        if self._hooks is None:
            raise RuntimeError("bridge.attach has not been called: it must be before batches()")
        return self._hooks

    @property
    def served_version(self) -> int | None:
        """The policy version under which these very weights are served; None when they were trained since."""
        return self.version if self.served == self.step else None

    @staticmethod
    def open(
        config: str | os.PathLike[str] | S, *, device: torch.device | None = None, signals: bool = True,
        early: Callable[[], None] = nothing, beside: bool = False,
    ) -> Bridge[Any]:  # fmt: skip
        """Reads the configuration, serves commands, joins the other ranks; the event "starting" is the first.

        config: the JSON file that recipe writes (the argument of --config), or settings that were read already.
        device: default CUDA device LOCAL_RANK, or the CPU without one. A process group that exists is used; else
        torchrun's variables RANK, WORLD_SIZE and LOCAL_RANK make one. signals: SIGTERM and SIGINT end the run with a
        checkpoint. early() does what can be done without the device, before the block is started: where trainer and
        inference share a GPU, everything else waits. beside: until inference has taken its memory, not until it
        answers. This trainer then sees to it that the rest is enough, and calls start() where it is not. ConfigError,
        one mistake a line, when the configuration is wrong."""
        given = config if isinstance(config, RunSettings) else settings.from_dict(settings.load(config), Settings)
        block: RunSettings = given
        main = int(os.environ.get("RANK", 0)) == 0
        events, control = Events(block.events_file if main else None), None
        try:
            if main:
                control = Control(block.control, block.control_token)
                events.control = control
            settings.check_model(block)
            if block.prepare == stage.HOST:
                events.phase("loading", model=block.model.path)
                early()
                block = stage.started(block, control, events, beside)
            ranks = Ranks(device or default_device(), block.collective_timeout)
        except Exception as e:
            report(e, events, block, main)
            if control is not None:
                control.close()
            raise
        if block.threads:
            torch.set_num_threads(block.threads)
        bridge = Bridge(block, ranks, events, control)
        if signals:
            bridge._catch()
        events.phase("loading", model=block.model.path)
        return bridge

    def start(self) -> None:
        """Waits until the block is started, where it was only prepared up to here. attach does so by itself."""
        if not self.block.prepare:
            return
        block = stage.started(self.block, self.control, self.events) if self.main else None
        self.block = cast("S", self.ranks.share(block))
        self.version = max(self.version, self.block.policy_version)
        self.device_shared = self.block.wait_for_sync

    def resume(self) -> Checkpoint | None:
        """The newest complete checkpoint, or None: its folder (what `save` wrote), its step, and its state, in which
        are the values that `state` gave. Load weights and optimizer from it before attach.

        CheckpointError when `resume` is off and a checkpoint is there: a later start would go on from that one."""
        self._looked = True
        found: Path | None = self.ranks.share(checkpoint.newest(self.block.checkpoint_dir))
        if found is None:
            return None
        if not self.block.resume:
            raise CheckpointError(
                f"resume is false, and {found} is there: a later start would go on from it, not from this run",
                ["Set resume = true, or move the directory away, or use another checkpoint_dir."],
            )
        state = checkpoint.read_state(found)
        self.step, self.cursor = state["step"], state["cursor"]
        self.version = max(self.block.policy_version, state["policy_version"])  # it never goes back
        self.last, self.resumed = state["metrics"], True
        self.served = -1
        self.events.emit("resumed", checkpoint=str(found), step=self.step, policy_version=self.version)
        return Checkpoint(found, self.step, state)

    def attach(
        self, *, named: Named, logprobs: Logprobs, save: Save, storage: Storage | None = None,
        adapter: Adapter | None = None, update: Update | None = None, state: Callable[[], dict[str, Any]] = dict,
        sleep: Callable[[], None] = nothing, wake: Callable[[], None] = nothing,
        config: Callable[[Path], None] | None = None, adapter_config: Callable[[Path], None] | None = None,
        tied: Mapping[str, str] | None = None, trained: torch.dtype | None = None,
        reading: Callable[[], ReadOptions] | None = None, select: Select | None = None,
        summary: Mapping[str, Any] | None = None, ahead: bool = False,
    ) -> None:  # fmt: skip
        """Registers what the bridge calls, between steps and while it waits, on every rank:

        named() -> (name, tensor) of every weight: names and shapes of the checkpoint that inference loads, whole
            tensors (shards gathered), adapters merged in, any floating dtype, on the training device.
        logprobs(ids int64 [1, L], temperature) -> floating [L - 1]: log-probabilities of ids[0, 1:], each given what
            is before it, natural logarithm, logits divided by the temperature. They verify what inference serves.
        save(folder): the trainer's own checkpoint into an empty folder. Rank 0 writes what is whole; every rank may
            write files of its own.
        storage() -> {name: parameter}: parameters whose memory stays where it is, which transport ipc then shares
            without a copy (one process on a GPU). Leave it out when parameters move or are sharded.
        adapter() -> (name, tensor) in peft's file names, with adapter_config(folder), which writes
            adapter_config.json: transport lora.
        update(change) -> the new settings: live changes of the supervisor, all or nothing; ConfigError refuses.
            Default: the settings that every trainer has.
        state() -> JSON that the checkpoint's state keeps and resume() gives back.
        sleep(), wake(): inference takes the device for a while: give back what training alone needs; take it again.
        config(folder): writes config.json beside published weights. Default: that of the model.
        tied: {name: name of the weight that it is}, such as {"lm_head.weight": "model.embed_tokens.weight"}.
        trained: precision of the weights that the optimizer moves; a coarser publication is reported as `rounded`.
        reading() -> ReadOptions: limits and conventions when groups are read. Default: the block's lengths.
        select(groups) -> (groups, metrics): which of a batch's groups train.
        summary: facts of the event "loaded".
        ahead: this trainer calls settle() each time before it changes weights. Then batches() goes on when weights have
            been read, and the next step is calculated while inference loads and verifies them."""
        if not self._looked and self.resume() is not None:
            raise RuntimeError("there is a checkpoint to resume from: call bridge.resume() and load it before attach")
        self._hooks = Hooks(
            named, logprobs, save, storage, adapter, update, sleep, wake, state, config, adapter_config, tied or {},
            trained, reading or self._reading, select, ahead,
        )  # fmt: skip
        self.start()
        self.sleep()
        self.note_state()
        about = {"memory": place(self.device), "machine": host(), **(summary or {})}
        self.events.emit("loaded", world=self.world, step=self.step, **about)

    @overload
    def batches(self) -> Iterator[Batch]: ...

    @overload
    def batches(self, build: Callable[[GroupBatch], B]) -> Iterator[B]: ...

    def batches(self, build: Callable[[GroupBatch], Any] = Batch.build) -> Iterator[Any]:
        """The batches to train, the same on every rank; commands are served while it waits. A batch is stored before
        it is acknowledged and yielded, so that a killed run takes it up again. After each one call stepped or skipped.

        Ends when the steps are done, at a stop, or when the task is solved, with a last checkpoint. build makes what
        is yielded, on every rank; default: Batch.build. Raises WorkerError when the run cannot go on: NoDataError,
        SyncTimeout, DataError, AtroposAPIError."""
        _ = self.hooks  # attach comes first
        self.connect()
        while True:
            order = self.feed.decide(self.step >= self.block.steps) if self.feed else None
            kind, content = self.ranks.share(order)
            if kind == "command":
                commands.carry_out(self, *content)
            elif kind == "batch":
                taken = self._take(content)
                if taken is None:
                    continue
                if self.feed and self.step + 1 < self.block.steps:
                    self.feed.rollouts.fetch_ahead()
                yield build(taken)
                if self.current is not None:
                    raise RuntimeError("call bridge.stepped(metrics) or bridge.skipped(reason) after each batch")
            elif kind == "fail":
                raise content
            elif kind in ("completed", "stopped", "solved"):
                self._finish(kind)
                return

    def settle(self) -> None:
        """Waits until inference serves the weights of the step before, and answers what a sync block asks about them.
        It hardly ever takes time: inference has had a forward and a backward pass for it. For trainers that said
        attach(ahead=True); returns at once where nothing is to be waited for. Raises SyncTimeout."""
        if not self.ahead:
            return
        began, before = time.perf_counter(), self.events.state["phase"]
        while self.ahead:
            kind, content = self.ranks.share(self.feed.settle() if self.feed else None)
            if kind == "command":
                commands.carry_out(self, *content)
            elif kind == "settled":
                self.ahead = False
            elif kind == "fail":
                raise content
        if self.events.state["phase"] != before:
            self.events.phase(before)
        if self.feed:
            self.feed.held_up += time.perf_counter() - began

    def stepped(
        self, metrics: Mapping[str, Any], warnings: tuple[str, ...] | list[str] = (), *,
        logprobs: Tensor | None = None, advantages: Tensor | None = None,
    ) -> None:  # fmt: skip
        """The batch has been trained. Reports progress and metrics (the data's own are added), writes a checkpoint when
        one is due, and offers the weights; batches() waits until they are served where the run is synchronized.

        metrics: numbers by name; see plugins/grpo/worker/PROTOCOL.md for the names that recipe shows. warnings: told
        once each. logprobs (under the weights before the step) and advantages (as they entered the loss): [N] over the
        batch's trained tokens, sequence after sequence, for the record of samples; rank 0's are taken, and posted in
        the background. A trainer may leave them out. CheckpointError when a checkpoint that is due cannot be written;
        while the disk is full it waits for room."""
        batch = self._current()
        if self.ahead:
            raise RuntimeError("attach(ahead=True) promises bridge.settle() before weights change")
        seconds = time.perf_counter() - self._began
        own = {} if "reward/mean" in metrics else describe_groups(batch.groups)
        report = {**own, "time/step": seconds, **metrics, **batch.facts}
        report.update({"time/wait": batch.waited, "step": float(self.step + 1)})
        if self.feed and self.block.wait_for_sync:
            report["time/sync"], self.feed.held_up = self.feed.held_up, 0.0
        for warning in [*warnings, *checkpoint.unscored(self.block, report)]:
            self._warn(warning)
        self.current, self.last = None, report
        self.step, self.cursor = self.step + 1, batch.number
        self.note_state()
        if self._recorder is not None:
            given = {"logprobs": logprobs, "advantages": advantages}
            values = {k: x.detach().float().cpu() for k, x in given.items() if x is not None}
            self._recorder.post(batch, self.version, values)
        self.events.emit("metric", step=self.step, policy_version=self.version, batch=batch.number, metrics=report)
        self.events.emit("progress", step=self.step, steps=self.block.steps)
        if self.feed:
            self.feed.rewards.append(report.get("reward/mean", 0.0))
        if self.block.save_every and self.step % self.block.save_every == 0 and self.step < self.block.steps:
            try:
                self.save("interval")
            except Unwritable as e:
                self.events.emit(
                    "warning", message=f"step {self.step} was not saved, because the run stops: {e.message}"
                )
        self._offer(self.step % self.block.publish_every == 0)

    def _warn(self, message: str) -> None:
        if message not in self._warned:
            self._warned.add(message)
            self.events.emit("warning", message=message)

    def skipped(self, reason: str, facts: Mapping[str, Any] | None = None) -> None:
        """The batch is used up without a step: nothing was learned of it, and it does not come again."""
        batch = self._current()
        self.current, self.cursor = None, batch.number
        self.note_state()
        told = {**batch.facts, **(facts or {})}
        self.events.emit("skipped", batch=batch.number, step=self.step, reason=reason, facts=told)
        self._offer(False)

    def refuse(self) -> None:
        """The run will end because of this batch: a later start must not meet it again."""
        if self.feed:
            self.feed.rollouts.spool.refuse(self._current().number)

    def save(self, why: str) -> str | None:
        """A checkpoint of now, through the `save` of attach; its folder, on rank 0."""
        before = self.events.state["phase"]
        self.events.phase("checkpointing", why=why)
        public = settings.public(self.block)
        state = {
            "step": self.step, "policy_version": self.version, "cursor": self.cursor, "metrics": self.last,
            "world": self.world, "config": public, **self.hooks.state(),
        }  # fmt: skip
        try:
            path = self._written(state, why)
        except Exception:
            self.events.phase(before)  # whoever asked for it is told; the run goes on where it was
            raise
        if self.main:
            if self.feed:
                self.feed.rollouts.spool.covered(self.cursor)
            self.events.state["checkpoint"] = str(path)
            self.events.emit("checkpoint", path=str(path), step=self.step, why=why, policy_version=self.version)
        self.events.phase(before)
        return str(path) if self.main else None

    def _written(self, state: dict[str, Any], why: str) -> Path:
        """The folder of the checkpoint. One that was not asked for waits until the disk takes it, and is given up when
        the run is to stop: then the last checkpoint is tried once."""
        while True:
            try:
                return checkpoint.save(self.block, state, self.hooks.save, self.main, self.ranks.agree, self._warn)
            except Unwritable as e:
                if why in ("asked", "stopped") or not self._room(e):
                    raise
            self.events.phase("checkpointing", why=why)

    def _room(self, e: Unwritable) -> bool:
        """Waits until a disk may take a write, and serves commands meanwhile; False when the run is to stop."""
        folder = Path(e.folder)
        before, since = free(folder), time.monotonic()
        where = e.awaited(before)
        self.events.phase("no_room", for_what=where)
        while True:
            kind, content = self.ranks.share(self.feed.room(folder, before, since) if self.feed else None)
            if kind == "command":
                commands.carry_out(self, *content)
                self.events.phase("no_room", for_what=where)
            elif kind != "idle":
                return bool(kind == "retry")

    def save_model(self, folder: Path) -> None:
        """The current weights in the format of transformers, for use in `save`: inference can start from them. Every
        rank takes part; rank 0 writes."""
        out = folder if self.main else None
        weights.save_model(self.hooks.weights(), out, self.block.model.path, config=self.hooks.config)

    def close(self, error: BaseException | None = None) -> int:
        """Ends what open began; the exit status. error: what ended the run, told in the event "error" with its code and
        what to check; WorkerErrors explain themselves, others are reported with a traceback."""
        if error is not None:
            report(error, self.events, self.block, self.main)
        if self._recorder is not None:
            self._recorder.close()
        if self.control is not None:
            self.control.close()
        self.sender.close()
        self.ranks.close()
        self.events.close()
        for number, handler in self._handlers.items():
            signal.signal(number, handler)
        self._handlers.clear()
        return 0 if error is None else 1

    # ---- for commands and the feed ----

    def sleep(self) -> None:
        """Where the device is shared, inference has it from now on."""
        if self.device_shared:
            self.hooks.sleep()

    def adopt(self, version: int) -> None:
        """Inference serves, or is about to serve, this policy version."""
        if version != self.version:
            published, step = self.published
            self.version, self.served = version, step if published == version else -1

    def use(self, block: S) -> None:
        """Takes over live settings."""
        self.block = block
        if self.feed:
            self.feed.config = self.feed.rollouts.config = block
        self.note_state()

    def note_state(self) -> None:
        """What the state of the events shows."""
        self.events.state.update(
            step=self.step, steps=self.block.steps, policy_version=self.version, metrics=self.last, batch=self.cursor,
        )  # fmt: skip

    # ---- inside ----

    def _catch(self) -> None:
        """Rank 0 hears signals as a stop; the others leave it to rank 0 to tell them."""
        control = self.control

        def stop(*_: object) -> None:
            if control is not None:
                control.commands.put(Command("stop", {}))

        for number in (signal.SIGTERM, signal.SIGINT):
            self._handlers[number] = signal.signal(number, stop if control is not None else signal.SIG_IGN)

    def _reading(self) -> ReadOptions:
        data = self.block.data
        return ReadOptions(data.max_length, data.max_prompt_length, data.max_response_length)

    def _current(self) -> GroupBatch:
        if self.current is None:
            raise RuntimeError(
                "no batch is being trained: bridge.batches() yields one, which is stepped or skipped once"
            )
        return self.current

    def connect(self) -> None:
        """Rank 0 registers with the trajectory API, once, and settles what an earlier process of this run left.
        batches() does so itself."""
        if not self.main or self.feed is not None:
            return
        block = self.block
        self.events.phase("connecting", url=shown(block.data.url))
        self._aside = RejectedGroups(Path(block.checkpoint_dir) / "set-aside")
        spool = Spool(Path(block.checkpoint_dir) / "spool", self.cursor)
        if not block.resume:
            spool.clear()
        rollouts = Rollouts(block, self.events, spool)
        self._recorder = Recorder(rollouts.client)
        self.feed = Feed(block, self.events, self.control, rollouts)
        rollouts.connect(self.step)
        if self.resumed and block.wait_for_sync:  # inference may serve anything: first it gets these weights
            self.feed.offer(self.step)

    def begin(self) -> None:
        """Lets environments begin before something that takes long, such as loading or compiling: they wait until a
        trainer has asked for a batch. resume() comes first: in a run that continues they do not, because inference
        first gets its weights. Nor do they before the block is started: batches() lets them begin then, or another
        call of this."""
        if not self._looked:
            raise RuntimeError("call bridge.resume() before begin: a run that continues must not begin so")
        if self.resumed or self.block.prepare:
            return
        before = self.events.state["phase"]
        self.connect()
        if self.feed:
            self.feed.rollouts.begin()
        self.events.phase(before)

    def _take(self, delivery: Delivery) -> GroupBatch | None:
        """A batch to train; None when nothing of it can be, and it is used up."""
        self.hooks.wake()
        self.events.phase("training", batch=delivery.number, replayed=delivery.replayed)
        self.current = self._read(delivery)
        self._began = time.perf_counter()
        if any(len(c.positions) for g in self.current.groups for c in g.completions):
            return self.current
        self.skipped("no group of it can be trained")
        return None

    def _read(self, delivery: Delivery) -> GroupBatch:
        """The delivery's groups that may train, and what was left out and why; the same on every rank."""
        options = self.hooks.reading()
        kept: list[tuple[Group, Any]] = []
        refused: Counter[str] = Counter()
        examples: dict[str, str] = {}
        stored = 0
        for raw in delivery.groups:
            try:
                kept.append((read_group(raw, options), raw))
            except GroupRejected as e:
                if e.reason == "too_long" and self.block.data.overlong == "error":
                    checks = ["Raise data.max_length, or lower the environment's.", "Or set data.overlong = reject."]
                    raise DataError(str(e), checks) from e
                refused[e.reason] += 1
                examples.setdefault(e.reason, str(e))
                if self._aside:
                    stored += self._aside.keep(delivery.number, raw, f"{e.reason}: {e}")
        facts: dict[str, Any] = {f"rejected_groups/{k}": float(v) for k, v in refused.items()}
        facts["rejected_groups/total"] = float(sum(refused.values()))
        if refused:
            where = str(self._aside.directory) if stored and self._aside else None
            reasons = dict(refused)
            self.events.emit("rejected", batch=delivery.number, reasons=reasons, examples=examples, set_aside=where)
        facts.update(describe_staleness([g.versions for g, _ in kept], self.version))
        limit, oldest = self.block.data.max_staleness, delivery.oldest or 0
        if limit is not None:
            oldest = max(oldest, self.version - limit)
        fresh = [(g, raw) for g, raw in kept if g.versions is None or g.versions[0] >= oldest]
        facts["staleness/dropped_groups"] = float(len(kept) - len(fresh))
        groups = [g for g, _ in fresh]
        facts["sequences/left_out"] = float(sum(g.left_out for g in groups))
        if self.hooks.select is not None:
            groups, more = self.hooks.select(groups)
            facts.update(more)
        raws = {id(g): raw for g, raw in fresh}
        raw = [raws[id(g)] for g in groups]
        places = {id(raw): i for i, raw in enumerate(delivery.groups)}
        return GroupBatch(delivery.number, self.step + 1, groups, raw, facts, delivery.waited, delivery.lease,
                          [places[id(r)] for r in raw])  # fmt: skip

    def _offer(self, due: bool) -> None:
        """A turn ends with the offer of the weights. On a shared device that is so whatever came of the batch."""
        self.sleep()
        if self.block.wait_for_sync and self.feed and (due or self.device_shared):
            self.feed.offer(self.step, self.hooks.ahead and not self.device_shared)

    def _finish(self, reason: str) -> None:
        """The last checkpoint, unless this very step has one, and the answer to a stop."""
        newest = checkpoint.newest(self.block.checkpoint_dir) if self.main else None
        have = self.ranks.share(newest is not None and newest.name == f"step_{self.step}")
        if self.step and not have:
            self.save(reason)
        self.reason = reason
        self.events.phase("done", reason=reason)
        if self.feed:
            self.feed.rollouts.close()
            self.feed.answer({"step": self.step, "checkpoint": self.events.state.get("checkpoint")})


def work(block: RunSettings, train: Callable[[Bridge[Any]], None], early: Callable[[], None] = nothing) -> int:
    """One life of a trainer: opens its bridge, calls train(bridge), and reports what ended it; the exit status."""
    try:
        bridge = Bridge.open(block, early=early)
    except Exception:
        return 1  # reported where the supervisor reads
    try:
        train(bridge)
    except Exception as e:
        return bridge.close(e)
    return bridge.close()


def leave(status: int) -> None:
    """Ends the process. Threads that send weights may be inside torch, which aborts when the interpreter is taken down
    around them; receivers see the sockets close. So may those of a process group that a library made and left, or that
    has just ended."""
    distributed = sys.modules.get("torch.distributed")
    grouped = distributed is not None and distributed.is_available() and distributed.is_initialized()
    ranks = int(os.environ.get("WORLD_SIZE", 1))
    if grouped or ranks > 1 or any(t.name.startswith("weights") for t in threading.enumerate()):
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)
    sys.exit(status)
