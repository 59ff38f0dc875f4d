"""One training step, from a batch to moved weights. Knows nothing of where batches come from.

`Stepper.train` reads top to bottom: what is minimised, log-probabilities, advantages, optimizer steps, report. An
optimizer step is `Stepper.optimize`. Vectors over the trained tokens travel in `Vectors`, metrics in `Totals`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, fields, replace
from typing import Any

import torch
from recipe_sdk.errors import DataError, out_of_memory
from recipe_sdk.ranks import Ranks
from torch import Tensor

from . import batch, checks, correction, estimate, metrics, objective, optim
from .batch import Batch, Row
from .config import Config, estimator_spec, loss_spec
from .measure import Totals
from .memory import Memory
from .model import Policy, Reference, reshard
from .objective import ObjectiveOptions


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


class Stepper:
    """Trains batches. `config` may be replaced between steps (live updates)."""

    def __init__(self, c: Config, policy: Policy, reference: Reference, optimizer: Any, ranks: Ranks, memory: Memory):
        self.config, self.policy, self.reference = c, policy, reference
        self.optimizer, self.ranks, self.memory = optimizer, ranks, memory
        self.parameters = [p for p in policy.parameters() if p.requires_grad]
        self.wide = torch.float64 if self.parameters[0].dtype == torch.float64 else torch.float32
        self.count = sum(p.numel() for p in policy.parameters())
        self.checked = False  # whether the sampler's definition of log-probability has been compared with ours

    def train(self, b: Batch, step: int, clock: metrics.Clock, version: int | None = None) -> dict[str, Any]:
        """Takes the batch's optimizer steps and returns the step's metrics. version: the policy version under which
        these very weights are served, which tells fresh samples from stale ones; None when they are not served."""
        c, device = self.config, self.ranks.device
        rows = self.rows(b, range(b.n))
        if not rows:
            raise DataError("the batch has no trained token", ["Do the masks mark any token (value other than -100)?"])
        with self.explaining_memory(b, clock):
            # What is minimised.
            o = objective.options(c, self.memory.entropy_coefficient(c))
            in_reward = self.memory.reward_coefficient(c)
            parts = batch.split(b, c.data.mini_batch_size) * c.data.epochs

            # Log-probabilities under the policy before the step, and under the reference.
            squared = "old" in estimator_spec(c).needs
            several = len(parts) > 1 and o.old_policy == "trainer"
            old: dict[str, Tensor] = {}
            with clock.phase("logprobs"):
                if several or c.correction.recompute == "always" or o.needs_current or in_reward or squared:
                    old = self.scores(self.policy, rows, b.size, o.needs_entropy, squared)
            with clock.phase("reference"):
                ref = self.reference_scores(b, rows)
            behavior = b.behavior.to(device, self.wide)
            self.check_definition(b, rows, behavior)

            # Advantages.
            normalizer = replace(self.memory.normalizer)
            with clock.phase("advantage"):
                adv, facts = estimate.advantages(c, b, self.memory.normalizer, old, ref, in_reward)
            report: dict[str, Any] = {**metrics.describe_batch(b), **facts}
            warnings = self.warnings(o, behavior, adv)
            if o.constants.ratio_level == "sequence" and facts["adv/override_frac"] > 0:
                # one ratio a sequence would spread a token's advantage over its neighbours: GSPO-token keeps them apart
                o = replace(o, constants=replace(o.constants, ratio_level="sequence_token"))

            # Optimizer steps.
            v = Vectors(b.seq.to(device), adv.to(device, self.wide), behavior, ref, old.get("lp"), old.get("lp"),
                        old.get("entropy"))  # fmt: skip
            if old:  # of the whole batch; otherwise the first forward pass tells it
                report.update(metrics.describe_served(b, v.old, behavior, version, slice(0, b.size), o.bounds))
            done: list[dict[str, Any]] = []
            for number, members in enumerate(parts):
                done.append(self.optimize(b, members, v, o, step, number, clock, version))
                if done[-1].get("absurd"):
                    break
                v = replace(v, current=None, entropy=None)  # these are no longer the current weights'

        # Report.
        report.update(metrics.over_optimizer_steps(done))
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

    def optimize(
        self, b: Batch, members: list[int], v: Vectors, o: ObjectiveOptions, step: int, number: int,
        clock: metrics.Clock, version: int | None,
    ) -> dict[str, Any]:  # fmt: skip
        """One optimizer step over the sequences `members` (contiguous), the batch's number-th, and its metrics."""
        c, ranks, device = self.config, self.ranks, self.ranks.device
        first, last = int(b.offset[members[0]]), int(b.offset[members[-1] + 1])
        rows = self.rows(b, members)
        if not rows:
            return {"empty": 1.0}
        if o.needs_current and v.current is None:
            with clock.phase("logprobs"):
                now = self.scores(self.policy, rows, b.size, o.needs_entropy)
            v = replace(v, current=now["lp"], entropy=now.get("entropy"))
        v = v.window(first, last)
        plan = objective.prepare(
            o, seq=v.seq - members[0], n=len(members), adv=v.adv, behavior=v.behavior,
            old=v.old if o.old_policy == "trainer" else None, ref=v.ref, current=v.current, entropy=v.entropy,
            seed=c.seed * 1_000_003 + step * 1009 + number,
        )  # fmt: skip

        self.optimizer.zero_grad(set_to_none=True)
        self.policy.train()
        lp, entropy = (torch.zeros(last - first, dtype=self.wide, device=device) for _ in range(2))
        totals = Totals(device)
        for row in batch.share(rows, ranks.rank, ranks.world):
            real = row is not None  # ranks without work still run: the others wait for them
            here = (row or rows[-1]).to(device)
            with clock.phase("forward"):
                s = self.policy(here, entropy=True, raw=self.raw, entropy_gradient=o.needs_entropy)
                objective_part = s.lp.sum() * 0
                if real:
                    index = here.index - first
                    part = objective.micro_loss(o, plan, index, s.lp, s.entropy)
                    objective_part = part.total * ranks.world  # sharded gradients are averaged; the objective is a sum
                    totals.add(part.metrics)
                    lp[index], entropy[index] = s.lp.detach().to(self.wide), s.entropy.detach().to(self.wide)
            with clock.phase("backward"):
                objective_part.backward()

        lp, entropy = ranks.sum(lp), ranks.sum(entropy)
        known = lp if v.current is None else v.current
        apart = correction.mismatch(known, plan.behavior, plan.seq, plan.n)
        report = {**metrics.describe_mismatch(apart), **totals.reduce(ranks),
                  **metrics.describe_plan(o, plan, lp, entropy)}  # fmt: skip
        if number == 0 and v.old is None:
            report.update(metrics.describe_served(b, known, plan.behavior, version, slice(first, last), o.bounds))
        if number == 0 and checks.absurd(c, apart):
            self.optimizer.zero_grad(set_to_none=True)
            return {**report, "absurd": 1.0}
        with clock.phase("optimizer"):
            norm = torch.nn.utils.clip_grad_norm_(self.parameters, c.optimizer.grad_clip or float("inf"))
            norm = norm.full_tensor() if hasattr(norm, "full_tensor") else norm
            report["grad_norm"] = float(norm)
            rate = optim.apply(c, self.optimizer, step)
            if torch.isfinite(norm):
                self.optimizer.step()
                report["learning_rate"] = rate
            else:
                report["skipped"] = 1.0
            self.optimizer.zero_grad(set_to_none=True)
        return report

    @property
    def raw(self) -> bool:
        """Whether log-probabilities ignore the sampling temperature."""
        return self.config.correction.logprobs_mode == "raw"

    def rows(self, b: Batch, sequences: Iterable[int]) -> list[Row]:
        """Packed rows. Without a variable-length kernel attention costs the square of the row, so rows stay short."""
        limit = self.config.model.row_tokens
        if self.policy.implementation in ("sdpa", "eager"):
            longest = max((len(b.tokens[i]) for i in sequences), default=0)
            limit = min(limit, max(longest, 4096 if self.ranks.device.type == "cuda" else 256))
        return batch.pack(b, sequences, limit)

    def scores(
        self, model: Policy, rows: list[Row], size: int, entropy: bool = False, squared: bool = False,
        raw: bool | None = None,
    ) -> dict[str, Tensor]:  # fmt: skip
        """Without gradient: {"lp", "entropy", "squared"} as (size,) vectors over the batch, the same on every rank."""
        wanted = ["lp"] + ["entropy"] * entropy + ["squared"] * squared
        out = {k: torch.zeros(size, dtype=self.wide, device=self.ranks.device) for k in wanted}
        model.eval()
        with torch.no_grad():
            for row in batch.share(rows, self.ranks.rank, self.ranks.world):
                here = (row or rows[-1]).to(self.ranks.device)
                s = model(here, entropy=entropy, squared=squared, raw=self.raw if raw is None else raw)
                if row is not None:
                    for k in wanted:
                        out[k][here.index] = getattr(s, k).to(self.wide)
        reshard(model)
        return {k: self.ranks.sum(v) for k, v in out.items()}

    def reference_scores(self, b: Batch, rows: list[Row]) -> Tensor | None:
        """(N,) log-probabilities under the reference; None when nothing asks for them, or nobody has them."""
        c = self.config
        wanted = c.kl.coefficient or c.kl.reward_coefficient or "reference" in loss_spec(c).needs
        if not wanted or self.reference.source == "none":
            return None
        if self.reference.source == "data":
            return b.ref.to(self.ranks.device, self.wide)
        with self.reference.ready() as model:
            return self.scores(model, rows, b.size)["lp"]

    def check_definition(self, b: Batch, rows: list[Row], behavior: Tensor) -> None:
        """Once per start, on the first batch sampled at a temperature other than 1."""
        warm = float(b.temperature[0]) if b.size else 1.0
        if self.checked or abs(warm - 1) < 1e-6 or bool(torch.isnan(behavior).all()):
            return
        self.checked = True
        found = []
        for raw in (self.raw, not self.raw):
            lp = self.scores(self.policy, rows[:1], b.size, raw=raw)["lp"]
            seen = torch.full_like(behavior, float("nan"))
            seen[rows[0].index] = behavior[rows[0].index]
            found.append(correction.mismatch(lp, seen, b.seq.to(lp.device), b.n))
        checks.definition(self.config, *found, warm)

    def warnings(self, o: ObjectiveOptions, behavior: Tensor, adv: Tensor) -> list[str]:
        """What a user should know of this batch under these settings."""
        out = []
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
            torch.cuda.empty_cache()
            longest = max(len(t) for t in b.tokens)
            resident = torch.cuda.memory_allocated(device)
            raise out_of_memory(clock.last, self.config.model.row_tokens, longest, used, limit, resident) from e
