"""One training step, from a batch to moved weights. Knows nothing of where batches come from.

`Stepper.train` reads top to bottom: what is minimized, log-probabilities, advantages, optimizer steps, report. An
optimizer step is `Stepper.optimize`. Vectors over the trained tokens travel in `Vectors`, metrics in `Totals`.
"""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, fields, replace
from typing import Any, TypeVar

import torch
from recipe_sdk.errors import DataError, WorkerError, out_of_memory
from recipe_sdk.ranks import Ranks
from torch import Tensor

from . import (
    batch,
    beside,
    checks,
    compiled,
    correction,
    estimate,
    merged,
    metrics,
    objective,
    offload,
    optim,
    prefetch,
    shards,
)
from .batch import Batch, Row
from .config import Config, estimator_spec, loss_spec
from .measure import Totals
from .memory import Memory
from .model import Policy, Reference, Scores, hold, reshard
from .objective import ObjectiveOptions
from .sizing import Sizing, free_memory, in_use
from .teacher import Question

T = TypeVar("T")
Begun = tuple[list[tuple[Row, bool]], Scores]  # rows, and the forward pass of the first of them, which is under way


@dataclass(frozen=True)
class Asked:
    """Log-probabilities that are on their way from a served reference: rank 0's question, or why there is none."""

    question: Question | WorkerError | None


@dataclass
class Vectors:
    """What a step knows of the batch's trained tokens: (N,) each, on the device."""

    seq: Tensor
    adv: Tensor
    behavior: Tensor
    ref: Tensor | None = None
    old: Tensor | None = None  # log-probabilities before the batch's first optimizer step
    current: Tensor | None = None  # those before this optimizer step, with the entropy of each token
    entropy: Tensor | None = None

    def window(self, first: int, last: int) -> Vectors:
        """The entries first to last."""
        parts = {f.name: getattr(self, f.name) for f in fields(self)}
        return Vectors(**{k: None if v is None else v[first:last] for k, v in parts.items()})


@dataclass(frozen=True)
class Part:
    """One optimizer step's share of a batch: the sequences `members` (contiguous), as the batch's number-th step.

    seed: of what a loss picks at random; version: see Stepper.train."""

    b: Batch
    members: list[int]
    number: int
    seed: int
    step: int
    version: int | None

    @property
    def window(self) -> tuple[int, int]:
        """First and last (exclusive) of its entries in the batch's (N,) vectors."""
        return int(self.b.offset[self.members[0]]), int(self.b.offset[self.members[-1] + 1])

    def rollouts(self, seq: Tensor) -> tuple[Tensor | None, int]:
        """Which of this part's rollouts each token belongs to, from the sequences (N,) of the tokens, and how many they
        are; None where each has one sequence."""
        of = self.b.rollout[self.members[0] : self.members[-1] + 1] - self.b.rollout[self.members[0]]
        count = int(of[-1]) + 1
        if count == len(of):
            return None, count
        return of.to(seq.device)[seq - self.members[0]], count


class Stepper:
    """Trains batches. `config` may be replaced between steps (live updates). settle() is called before weights change:
    inference may still load them."""

    def __init__(
        self, c: Config, policy: Policy, reference: Reference, optimizer: Any, ranks: Ranks, memory: Memory,
        settle: Callable[[], None] = lambda: None,
    ):  # fmt: skip
        self.settle = settle
        self.config, self.policy, self.reference = c, policy, reference
        self.optimizer, self.ranks, self.memory = optimizer, ranks, memory
        self.parameters = [p for p in policy.parameters() if p.requires_grad]
        self.wide = torch.float64 if self.parameters[0].dtype == torch.float64 else torch.float32
        self.whole = [p for p in self.parameters if ranks.world > 1 and not offload.sharded(p)]  # on every rank
        self.count = sum(p.numel() for p in policy.parameters())
        self.sizing = Sizing(policy, reference.copy, optimizer, ranks)
        self.notes: list[str] = []  # decisions about memory that nobody was told of yet
        policy.merged, why = merged.merge(
            policy.parts, c.lora.merged, ranks, free_memory(ranks.device), policy.autocast is not None,
            bool(policy.sharded),
        )  # fmt: skip
        if why:
            self.note(f"adapters are calculated beside the weights, not merged into them: {why}")
        if isinstance(optimizer, offload.AdamW):
            self.note(optimizer.note)
        self.prefetch = prefetch.Prefetch(policy, optimizer, self.sizing.room)
        self.tokens: dict[str, Tensor] = {}  # of the last batch, (N,) each: what was computed for its trained tokens
        self.beside = beside.Beside(ranks.device)
        self.begun: list[Begun] = []  # one at most: the batch's first, until it is used
        self.checked = False  # whether the sampler's definition of log-probability has been compared with ours

    def train(self, b: Batch, step: int, clock: metrics.Clock, version: int | None = None) -> dict[str, Any]:
        """Takes the batch's optimizer steps and returns the step's metrics. version: the policy version under which
        these very weights are served, which tells fresh samples from stale ones; None when they are not served."""
        c, device = self.config, self.ranks.device
        if not b.size:
            raise DataError("the batch has no trained token", ["Do the masks mark any token (value other than -100)?"])
        self.begun.clear()
        if not self.prefetch.active:
            self.sizing.give_back()
        if self.sizing.outgrown(b):
            offload.rest(self.optimizer)  # it would be taken for memory that is used for good
            self.note(self.sizing.decide(c, b))
        with self.explaining_memory(b, clock), self.prefetch.batch():
            # What is minimized.
            o = objective.options(c, self.memory.entropy_coefficient(c))
            in_reward = self.memory.reward_coefficient(c)
            parts = batch.split(b, c.data.mini_batch_size) * c.data.epochs

            # Log-probabilities under the policy before the step, and under the reference.
            asked = self.ask_teacher(b)
            squared = "old" in estimator_spec(c).needs
            several = len(parts) > 1 and o.old_policy == "trainer"
            old: dict[str, Tensor] = {}
            with clock.phase("logprobs"):
                if several or c.correction.recompute == "always" or o.needs_current or in_reward or squared:
                    old = self.scores(self.policy, b, o.needs_entropy, squared)
            with clock.phase("reference"):
                ref = self.reference_scores(b, asked, bool(in_reward))
            behavior, seq = b.behavior.to(device, self.wide), b.seq.to(device)
            self.check_definition(b, behavior)

            # Advantages.
            self.begin(b, parts[0], o, clock)
            normalizer = replace(self.memory.normalizer)
            with clock.phase("advantage"):
                adv, facts = estimate.advantages(c, b, self.memory.normalizer, old, ref, in_reward)
            if asked is not None and ref is None:  # the answers came while the device calculated
                with clock.phase("reference"):
                    ref = self.taught(asked)
            report: dict[str, Any] = {**metrics.describe_batch(b), **facts}
            warnings = self.warnings(o, b.behavior, adv, facts)
            if o.constants.ratio_level == "sequence" and facts["adv/override_frac"] > 0:
                # one ratio a sequence would spread a token's advantage over its neighbors: GSPO-token keeps them apart
                o = replace(o, constants=replace(o.constants, ratio_level="sequence_token"))

            # Optimizer steps.
            v = Vectors(seq, beside.sent(adv, device, self.wide), behavior, ref, old.get("lp"), old.get("lp"),
                        old.get("entropy"))  # fmt: skip
            self.tokens = {"logprobs": old.get("lp", torch.full_like(v.adv, math.nan)), "advantages": v.adv}
            if old:  # of the whole batch; otherwise the first forward pass tells it
                report.update(metrics.describe_served(b, v.old, behavior, version, slice(0, b.size), o.bounds))
            done: list[dict[str, Any]] = []
            for number, members in enumerate(parts):
                part = Part(b, members, number, (c.seed * 1_000_003 + step * 1009 + number) % 2**63, step, version)
                done.append(self.optimize(part, v, o, clock))
                if done[-1].get("absurd"):
                    break
                v = replace(v, current=None, entropy=None)  # these are no longer the current weights'

        # Report.
        report.update(metrics.over_optimizer_steps(done))
        warnings += checks.another_policy(report)
        if report.get("rejected/frac") == 1:
            warnings.append(
                "every token of a batch was rejected: nothing is learned from it (metric rejected/frac). Is high of "
                "correction.rejection too low, or does inference serve other weights?"
            )
        if report.pop("skipped", None):
            warnings.append(
                "gradients that are not finite: such optimizer steps are left out (metric optimizer_skipped). Are the "
                "advantages, scores and log-probabilities of sane size? Lower optimizer.learning_rate, or use float32"
            )
        if report.get("absurd"):
            self.memory.normalizer = normalizer  # a batch that is not trained teaches nothing
        else:
            self.memory.adapt(c, report, b.n)
        return {**report, "warnings": warnings}

    def optimize(self, part: Part, v: Vectors, o: ObjectiveOptions, clock: metrics.Clock) -> dict[str, Any]:
        """One optimizer step, and its metrics."""
        c, ranks = self.config, self.ranks
        first, last = part.window
        if o.needs_current and v.current is None:
            with clock.phase("logprobs"):
                now = self.scores(self.policy, part.b, o.needs_entropy, members=part.members)
            v = replace(v, current=now["lp"], entropy=now.get("entropy"))
        v = v.window(first, last)
        rollout, rollouts = part.rollouts(v.seq)
        plan = objective.prepare(
            o, seq=v.seq - part.members[0], n=len(part.members), adv=v.adv, behavior=v.behavior,
            old=v.old if o.old_policy == "trainer" else None, ref=v.ref, current=v.current, entropy=v.entropy,
            seed=part.seed, rollout=rollout, rollouts=rollouts,
        )  # fmt: skip
        lp, entropy, totals = self.within_memory(lambda: self.accumulate(part, plan, o, clock))
        with self.beside:  # the last backward pass
            lp, entropy = ranks.sum_by_host(lp), ranks.sum_by_host(entropy)
            known = lp if v.current is None else v.current
            apart = correction.mismatch(known, plan.behavior, plan.seq, plan.n)
            report = {**metrics.describe_mismatch(apart), **totals.reduce(ranks),
                      **metrics.describe_plan(o, plan, lp, entropy)}  # fmt: skip
            seen = self.tokens["logprobs"][first:last]
            seen.copy_(torch.where(seen.isnan(), known, seen))  # of its first pass, where no pass before told them
            if part.number == 0 and v.old is None:
                window = slice(first, last)
                report.update(metrics.describe_served(part.b, known, plan.behavior, part.version, window, o.bounds))
        if part.number == 0 and checks.absurd(c, apart):
            self.optimizer.zero_grad(set_to_none=True)
            return {**report, "absurd": 1.0}
        self.settle()
        with clock.phase("optimizer"):
            report.update(self.move(part.step))
        self.sizing.fits()
        return report

    def begin(self, b: Batch, members: list[int], o: ObjectiveOptions, clock: metrics.Clock) -> None:
        """Starts the first forward pass: the device need not wait for the CPU to calculate advantages."""

        def first() -> Begun:
            rows = self.prepared(b, members)
            with clock.phase("forward"):
                return rows, self.forward(rows[0][0], o)

        self.begun.append(self.within_memory(first))

    def prepared(self, b: Batch, members: list[int]) -> list[tuple[Row, bool]]:
        """Rows for forward passes that train."""
        self.policy.train()
        return self.rows(b, members)

    def forward(self, row: Row, o: ObjectiveOptions) -> Scores:
        """Scores of a row, with gradient."""
        return self.policy(row, entropy=True, raw=self.raw, entropy_gradient=o.needs_entropy)

    def accumulate(
        self, part: Part, plan: objective.Plan, o: ObjectiveOptions, clock: metrics.Clock
    ) -> tuple[Tensor, Tensor, Totals]:
        """Gradients of the objective from all rows; log-probabilities and entropy of this rank's tokens, (N,) each, and
        the metrics."""
        ranks, device = self.ranks, self.ranks.device
        first, last = part.window
        self.optimizer.zero_grad(set_to_none=True)
        lp, entropy = (torch.zeros(last - first, dtype=self.wide, device=device) for _ in range(2))
        totals = Totals(device)
        rows, begun = self.begun.pop() if self.begun else (self.prepared(part.b, part.members), None)
        for k, (row, real) in enumerate(rows):
            hold(self.policy, self.sizing.whole_gradients and k + 1 < len(rows))
            with clock.phase("forward"):
                s = self.forward(row, o) if k or begun is None else begun
                objective_part = s.lp.sum() * 0
                if real:
                    index = row.index - first
                    share = objective.micro_loss(o, plan, index, s.lp, s.entropy)
                    objective_part = share.total * ranks.world  # gradients are averaged; the objective is a sum
                    totals.add(share.metrics)
                    lp[index], entropy[index] = s.lp.detach().to(self.wide), s.entropy.detach().to(self.wide)
            self.beside.mark()
            with clock.phase("backward"), self.prefetch.backward(k + 1 == len(rows)):
                objective_part.backward()
        with clock.phase("backward"):
            ranks.mean([p.grad for p in self.whole if p.grad is not None])
        return lp, entropy, totals

    def move(self, step: int) -> dict[str, Any]:
        """The optimizer's own step, unless a gradient is not finite."""
        c = self.config
        found = shards.clip(self.parameters, c.optimizer.grad_clip, self.ranks)
        norm = beside.fetched(found)  # before the optimizer's transfers, which may still be going on
        rate = optim.apply(c, self.optimizer, step)
        if optim.leave_out(self.optimizer, ~found.isfinite()) or math.isfinite(norm()):
            self.within_memory(self.optimizer.step)  # its state is allocated in the first one
            if self.policy.merged:
                self.policy.merged.refresh()
        self.optimizer.zero_grad(set_to_none=True)
        report: dict[str, Any] = {"grad_norm": norm()}
        if math.isfinite(report["grad_norm"]):
            return {**report, "learning_rate": rate}
        return {**report, "skipped": 1.0}

    def within_memory(self, action: Callable[[], T]) -> T:
        """What the action returns. When the device runs out of memory it is done again: once in the same way, if that
        has fitted before, with what torch keeps given back, since its pieces may have become too small; then with
        smaller rows or recomputed activations, if they were left to choose."""
        again = False
        while True:
            try:
                return action()
            except torch.OutOfMemoryError:
                reason = "" if again else self.sizing.once_more()
                again = bool(reason)
                reason = reason or self.sizing.step_down()
                if not reason:
                    raise
                reason += in_use(self.ranks.device)
            # here nothing holds on to the memory of the attempt
            self.note(reason)
            offload.rest(self.optimizer)
            torch.cuda.empty_cache()

    def note(self, reason: str) -> None:
        """Keeps a decision for the trainer to tell."""
        if reason:
            self.notes.append(reason)

    def warm_up(self, c: Config, later: int = 0) -> float | None:
        """Compiles before there is a batch, on a row of made-up tokens whose gradients are thrown away; seconds. later:
        bytes that inference on the device will still take, and that are left to it; None: there is too little memory
        for both."""
        start = time.perf_counter()
        self.sizing.decide(c, None)
        if later and self.sizing.warming() + later > self.sizing.machine.free:
            self.sizing.choice = None
            return None
        if self.sizing.choice.compile:
            backbone = self.policy.backbone
            row = self.sizing.row_tokens(c) if self.ranks.device.type == "cuda" else 0
            # sharded layers are set up together, so there all of them run
            few = compiled.one_of_each(backbone, self.policy.recomputed)
            with contextlib.nullcontext() if self.policy.sharded else few:
                self.policy.train()
                made_up = batch.sample(self.policy.causal.config.vocab_size, compiled.lengths(row))
                s = self.policy(made_up.to(self.ranks.device), entropy=True)
                (s.lp * torch.ones_like(s.lp)).sum().backward()
            self.optimizer.zero_grad(set_to_none=True)
        self.sizing.choice = None  # decided for good when a batch is there
        if later:
            torch.cuda.empty_cache()
        return time.perf_counter() - start

    @property
    def raw(self) -> bool:
        """Whether log-probabilities ignore the sampling temperature."""
        return self.config.correction.logprobs_mode == "raw"

    def rows(self, b: Batch, sequences: Iterable[int]) -> list[tuple[Row, bool]]:
        """This rank's packed rows on the device, and whether they count: ranks without work still run, because the
        others wait for them."""
        limit, device = self.sizing.row_tokens(self.config), self.ranks.device
        most = self.policy.longest_row(max((len(b.tokens[i]) for i in sequences), default=0))
        limit = 1 if self.policy.alone else min(limit, most) if most else limit
        packed = batch.pack(b, sequences, limit)
        mine = batch.share(packed, self.ranks.rank, self.ranks.world)
        return [((row or packed[-1]).to(device), row is not None) for row in mine]

    def scores(
        self, model: Policy, b: Batch, entropy: bool = False, squared: bool = False, raw: bool | None = None,
        members: Iterable[int] | None = None, most: int | None = None,
    ) -> dict[str, Tensor]:  # fmt: skip
        """Without gradient: {"lp", "entropy", "squared"} as (N,) vectors over the batch, the same on every rank.
        members: only of these sequences; most: only of so many rows."""
        wanted = ["lp"] + ["entropy"] * entropy + ["squared"] * squared
        sequences = range(b.n) if members is None else members

        def run() -> dict[str, Tensor]:
            out = {k: torch.zeros(b.size, dtype=self.wide, device=self.ranks.device) for k in wanted}
            model.eval()
            with torch.no_grad():
                for row, real in self.rows(b, sequences)[:most]:
                    s = model(row, entropy=entropy, squared=squared, raw=self.raw if raw is None else raw)
                    if real:
                        for k in wanted:
                            out[k][row.index] = getattr(s, k).to(self.wide)
            return out

        out = self.within_memory(run)
        reshard(model)
        return {k: self.ranks.sum(v) for k, v in out.items()}

    @property
    def compares(self) -> bool:
        """Whether the objective compares with a reference."""
        c = self.config
        return bool(c.kl.coefficient or c.kl.reward_coefficient or "reference" in loss_spec(c).needs)

    def ask_teacher(self, b: Batch) -> Asked | None:
        """Requests a batch's log-probabilities from a reference that is served, on rank 0; None where there is none."""
        if self.reference.teacher is None or not self.compares:
            return None
        try:
            return Asked(self.reference.teacher.ask(b, self.raw) if self.ranks.main else None)
        except WorkerError as e:
            return Asked(e)

    def taught(self, asked: Asked) -> Tensor:
        """What it has answered, on every rank."""
        found: Any = asked.question
        if isinstance(found, Question):
            try:
                found = self.reference.teacher.wait(found)
            except WorkerError as e:
                found = e
        found = self.ranks.share(found)
        if isinstance(found, WorkerError):
            raise found
        return found.to(self.ranks.device, self.wide)

    def reference_scores(self, b: Batch, asked: Asked | None = None, now: bool = True) -> Tensor | None:
        """(N,) log-probabilities under the reference; None when nothing asks for them, or nobody has them, or they are
        on their way and not needed now."""
        if not self.compares or self.reference.source == "none":
            return None
        if asked is not None:
            return self.taught(asked) if now else None
        if self.reference.source == "data":
            return b.ref.to(self.ranks.device, self.wide)
        with self.reference.ready() as model:
            return self.scores(model, b)["lp"]

    def check_definition(self, b: Batch, behavior: Tensor) -> None:
        """Once per start, on the first batch sampled at a temperature other than 1."""
        warm = float(b.temperature[0]) if b.size else 1.0
        if self.checked or abs(warm - 1) < 1e-6 or bool(torch.isnan(behavior).all()):
            return
        self.checked = True
        found = []
        for raw in (self.raw, not self.raw):
            lp = self.scores(self.policy, b, raw=raw, most=1)["lp"]
            seen = torch.where(lp != 0, behavior, float("nan"))  # only the tokens of that row
            found.append(correction.mismatch(lp, seen, b.seq.to(lp.device), b.n))
        checks.definition(self.config, *found, warm)

    def warnings(self, o: ObjectiveOptions, behavior: Tensor, adv: Tensor, facts: dict[str, float]) -> list[str]:
        """What a user should know of this batch under these settings."""
        out, a = [], self.config.advantages
        if not bool(adv.any()) and o.loss.name not in ("sft", "distill"):
            out.append(
                "every advantage of a batch is 0: nothing is learned from it. Groups of equal scores have none (metric "
                "groups/zero_variance), nor have groups of one: is the task too hard or too easy for this model?"
            )
        if a.normalization != "none" and a.normalize_scope == "override" and not facts["adv/override_frac"]:
            out.append(
                f"advantages.normalization = {a.normalization} normalizes advantages that environments send, and none "
                "came: set advantages.normalize_scope = all to normalize those that are calculated"
            )
        if o.importance_lenient and bool(torch.isnan(behavior).any()):
            out.append(
                "groups came without the sampler's log-probabilities (inference_logprobs): nothing corrects them when "
                "they are stale, and nothing notices when other weights are served"
            )
        if o.loss.unbounded and self.config.advantages.clip is None and bool((adv < 0).any()):
            out.append("advantages below 0 make weighted cross entropy unbounded: set advantages.clip")
        return out

    @contextlib.contextmanager
    def explaining_memory(self, b: Batch, clock: metrics.Clock) -> Iterator[None]:
        """Says what to lower when the device runs out of memory."""
        try:
            yield
        except torch.OutOfMemoryError as e:
            device = self.ranks.device
            used, limit = torch.cuda.max_memory_allocated(device), torch.cuda.get_device_properties(device).total_memory
            self.optimizer.zero_grad(set_to_none=True)
            offload.rest(self.optimizer)
            torch.cuda.empty_cache()
            longest = max(len(t) for t in b.tokens)
            resident = torch.cuda.memory_allocated(device)
            o = self.config.optimizer
            movable = optim.moments(self.parameters) if o.name == "adamw" and not o.offload else 0
            rows = self.sizing.row_tokens(self.config)
            raise out_of_memory(clock.last, rows, longest, used, limit, resident, movable) from e
