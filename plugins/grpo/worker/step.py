"""One training step: log-probabilities, advantages, optimizer steps. Knows nothing of where batches come from."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from recipe_sdk.errors import DataError, out_of_memory
from recipe_sdk.ranks import Ranks
from torch import Tensor

from . import advantage, aggregate, batch, checks, correction, estimate, metrics, objective, optim, override
from .batch import Batch, Row
from .config import Config, resolved
from .model import Policy, Reference, reshard


@dataclass
class Memory:
    """What training remembers between steps besides weights and optimizer; part of every checkpoint."""

    normalizer: override.Normalizer = field(default_factory=override.Normalizer)
    kl_reward: float | None = None  # adaptive coefficient of the KL in the reward
    entropy: float | None = None  # adaptive entropy coefficient
    entropy_seen: float | None = None

    def state(self) -> dict[str, Any]:
        """JSON for the checkpoint."""
        return {"normalizer": self.normalizer.state(), "kl_reward": self.kl_reward, "entropy": self.entropy,
                "entropy_seen": self.entropy_seen}  # fmt: skip

    @staticmethod
    def restore(state: dict[str, Any]) -> Memory:
        """The inverse of state."""
        return Memory(override.Normalizer(**state["normalizer"]), state["kl_reward"], state["entropy"],
                      state["entropy_seen"])  # fmt: skip


class Stepper:
    """Trains batches. `config` may be replaced between steps (live updates)."""

    def __init__(self, c: Config, policy: Policy, reference: Reference, optimizer: Any, ranks: Ranks, memory: Memory):
        self.config, self.policy, self.reference = c, policy, reference
        self.optimizer, self.ranks, self.memory = optimizer, ranks, memory
        self.parameters = [p for p in policy.parameters() if p.requires_grad]
        self.wide = torch.float64 if self.parameters[0].dtype == torch.float64 else torch.float32
        self.count = sum(p.numel() for p in policy.parameters())
        self.checked = False  # whether the sampler's definition of log-probability has been compared with ours

    @property
    def raw(self) -> bool:
        """Whether log-probabilities ignore the sampling temperature."""
        return self.config.correction.logprobs_mode == "raw"

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
                real = row is not None
                on_device = (row or rows[-1]).to(self.ranks.device)
                s = model(on_device, entropy=entropy, squared=squared, raw=self.raw if raw is None else raw)
                if real:
                    for k in wanted:
                        out[k][on_device.index] = getattr(s, k).to(self.wide)
        reshard(model)
        return {k: self.ranks.sum(v) for k, v in out.items()}

    def _rows(self, b: Batch, sequences: Iterable[int]) -> list[Row]:
        """Packed rows. Without a variable-length kernel attention costs the square of the row, so rows stay short."""
        limit = self.config.model.row_tokens
        if self.policy.implementation in ("sdpa", "eager"):
            longest = max((len(b.tokens[i]) for i in sequences), default=0)
            limit = min(limit, max(longest, 4096 if self.ranks.device.type == "cuda" else 256))
        return batch.pack(b, sequences, limit)

    def train(self, b: Batch, step: int, clock: metrics.Clock, version: int | None = None) -> dict[str, Any]:
        """Takes the batch's optimizer steps and returns the step's metrics. version: the policy version under which
        these very weights are served, which tells fresh samples from stale ones; None when they are not served."""
        try:
            return self._train(b, step, clock, version)
        except torch.OutOfMemoryError as e:
            device = self.ranks.device
            used, limit = torch.cuda.max_memory_allocated(device), torch.cuda.get_device_properties(device).total_memory
            self.optimizer.zero_grad(set_to_none=True)
            torch.cuda.empty_cache()
            longest = max(len(t) for t in b.tokens)
            resident = torch.cuda.memory_allocated(device)
            raise out_of_memory(clock.last, self.config.model.row_tokens, longest, used, limit, resident) from e

    def _train(self, b: Batch, step: int, clock: metrics.Clock, version: int | None) -> dict[str, Any]:
        c, device = self.config, self.ranks.device
        o = objective.options(c, self.memory.entropy if c.entropy.adaptive else None)
        if c.entropy.adaptive and (self.memory.entropy_seen or 0.0) > c.entropy.target:
            o = replace(o, entropy_coefficient=0.0)
        rows = self._rows(b, range(b.n))
        if not rows:
            raise DataError("the batch has no trained token", ["Do the masks mark any token (value other than -100)?"])
        parts = batch.split(b, c.data.mini_batch_size)
        estimator = advantage.ESTIMATOR_ALIASES.get(c.advantages.estimator, c.advantages.estimator)
        several = len(parts) * c.data.epochs > 1
        adapted = self.memory.kl_reward if c.kl.adaptive_target else None
        in_reward = c.kl.reward_coefficient if adapted is None else adapted
        baseline = estimator == "optimal_token_baseline"
        need_old = (
            (several and o.old_policy == "trainer") or c.correction.recompute == "always" or o.needs_current
            or bool(in_reward) or baseline
        )  # fmt: skip
        old: dict[str, Tensor] = {}
        with clock.phase("logprobs"):
            if need_old:
                old = self.scores(self.policy, rows, b.size, o.needs_entropy, baseline)
        with clock.phase("reference"):
            ref = self._reference(b, rows)
        behavior = b.behavior.to(device, self.wide)
        self._check_definition(b, rows, behavior)
        report: dict[str, Any] = metrics.describe_batch(b)
        before = replace(self.memory.normalizer)
        with clock.phase("advantage"):
            adv, facts = estimate.advantages(c, b, estimator, self.memory.normalizer, old, ref, in_reward)
        report.update(facts)
        warnings: list[str] = []
        if o.importance_lenient and bool(torch.isnan(behavior).any()):
            warnings.append(
                "groups came without the sampler's log-probabilities (inference_logprobs): nothing corrects them when "
                "they are stale, and nothing notices when other weights are served"
            )
        if o.loss.ratio_level == "sequence" and facts["adv/override_frac"] > 0:
            # one ratio a sequence would spread a token's advantage over its neighbours: GSPO-token keeps them apart
            o = replace(o, loss=replace(o.loss, ratio_level="sequence_token"))
        if o.loss.name == "weighted_sft" and c.advantages.clip is None and bool((adv < 0).any()):
            warnings.append("advantages below 0 make weighted cross entropy unbounded: set advantages.clip")
        adv_here = adv.to(device, self.wide)
        if old:  # of the whole batch; otherwise the first forward pass tells it
            report.update(metrics.describe_served(b, old["lp"], behavior, version, slice(0, b.size), _bounds(o)))
        ran: list[dict[str, Any]] = []
        for part in parts * c.data.epochs:
            fresh = old if not ran else {}  # after the first optimizer step these are no longer the current weights'
            ran.append(self._optimize(
                b, part, o, adv_here, behavior, ref, old.get("lp"), fresh.get("lp"), fresh.get("entropy"), step,
                len(ran), clock, version,
            ))  # fmt: skip
            if ran[-1].get("absurd"):
                break
        counted = [r for r in ran if "loss/total" in r] or ran
        for key in dict.fromkeys(k for r in counted for k in r):
            values = [r[key] for r in counted if key in r]
            worst = key.endswith("max") or key.endswith("max_abs")
            report[key] = max(values) if worst else sum(values) / len(values)
        report["optimizer_steps"] = float(sum("learning_rate" in r for r in ran))
        report["optimizer_skipped"] = float(sum("skipped" in r for r in ran))
        report["mismatch/mean_abs_first"] = ran[0].get("mismatch/mean_abs", 0.0)
        if report.pop("skipped", None):
            warnings.append(
                "gradients that are not finite: such optimizer steps are left out (metric optimizer_skipped). Are the "
                "advantages, scores and log-probabilities of sane size? Lower optimizer.learning_rate, or use float32"
            )
        if report.get("absurd"):
            self.memory.normalizer = before  # a batch that is not trained teaches nothing
        else:
            self._adapt(report, b.n)
        return {**report, "warnings": warnings}

    def _reference(self, b: Batch, rows: list[Row]) -> Tensor | None:
        c = self.config
        if not (c.kl.coefficient or c.kl.reward_coefficient or resolved(c)[0] == "distill"):
            return None
        if self.reference.source == "data":
            return b.ref.to(self.ranks.device, self.wide)
        if self.reference.source == "none":
            return None
        with self.reference.ready() as model:
            return self.scores(model, rows, b.size)["lp"]

    def _optimize(
        self, b: Batch, part: list[int], o: objective.ObjectiveOptions, adv: Tensor, behavior: Tensor,
        ref: Tensor | None, old: Tensor | None, current: Tensor | None, entropy: Tensor | None,
        step: int, number: int, clock: Any, version: int | None,
    ) -> dict[str, Any]:  # fmt: skip
        """One optimizer step over the sequences `part` (contiguous)."""
        c, ranks, device = self.config, self.ranks, self.ranks.device
        first, last = int(b.offset[part[0]]), int(b.offset[part[-1] + 1])
        window = slice(first, last)
        rows = self._rows(b, part)
        if not rows:
            return {"empty": 1.0}
        if o.needs_current and current is None:
            with clock.phase("logprobs"):
                now = self.scores(self.policy, rows, b.size, o.needs_entropy)
            current, entropy = now["lp"], now.get("entropy")
        cut = lambda x: None if x is None else x[window]  # noqa: E731
        plan = objective.prepare(
            o, seq=b.seq[window].to(device) - part[0], n=len(part), adv=adv[window], behavior=behavior[window],
            old=cut(old) if o.old_policy == "trainer" else None, ref=cut(ref),
            current=cut(current), entropy=cut(entropy), seed=c.seed * 1_000_003 + step * 1009 + number,
        )  # fmt: skip
        self.optimizer.zero_grad(set_to_none=True)
        self.policy.train()
        size = last - first
        lp, ent = (torch.zeros(size, dtype=self.wide, device=device) for _ in range(2))
        sums = torch.zeros(8, dtype=torch.float64, device=device)
        ratio_max = torch.zeros((), dtype=torch.float64, device=device)
        for row in batch.share(rows, ranks.rank, ranks.world):
            real = row is not None
            here = (row or rows[-1]).to(device)
            with clock.phase("forward"):
                s = self.policy(here, entropy=True, raw=self.raw, entropy_gradient=o.needs_entropy)
                index = here.index - first
                if real:
                    parts = objective.micro_loss(o, plan, index, s.lp, s.entropy)
                    lp[index], ent[index] = s.lp.detach().to(self.wide), s.entropy.detach().to(self.wide)
                    sums += parts.sums()
                    ratio_max = torch.maximum(ratio_max, parts.ratio_max.double())
            with clock.phase("backward"):
                # Sharded gradients are averaged over ranks; the objective is a sum. Ranks without work still run.
                total = parts.total * ranks.world if real else s.lp.sum() * 0
                total.backward()
        lp, ent, sums = ranks.sum(lp), ranks.sum(ent), ranks.sum(sums)
        highest = max(ranks.gather(float(ratio_max)))
        known = lp if current is None else current[window]
        apart = correction.mismatch(known, plan.behavior, plan.seq, plan.n)
        out = {**metrics.describe_mismatch(apart), **self._sizes(sums.tolist(), plan, highest, lp, ent)}
        out.update(_weights(o, plan, lp))
        if number == 0 and old is None:
            out.update(metrics.describe_served(b, known, plan.behavior, version, window, _bounds(o)))
        if number == 0 and checks.absurd(c, apart):
            self.optimizer.zero_grad(set_to_none=True)
            return {**out, "absurd": 1.0}
        with clock.phase("optimizer"):
            norm = torch.nn.utils.clip_grad_norm_(self.parameters, c.optimizer.grad_clip or float("inf"))
            norm = norm.full_tensor() if hasattr(norm, "full_tensor") else norm
            out["grad_norm"] = float(norm)
            rate = optim.apply(c, self.optimizer, step)
            if torch.isfinite(norm):
                self.optimizer.step()
                out["learning_rate"] = rate
            else:
                out["skipped"] = 1.0
            self.optimizer.zero_grad(set_to_none=True)
        return out

    def _sizes(self, sums: list[float], plan: objective.Plan, ratio_max: float, lp: Tensor, ent: Tensor) -> dict:
        total, policy, kl, bonus, ratio, high, low, dual = sums
        kept = max(int(plan.keep.sum()), 1)
        out = {
            "loss/total": total, "loss/policy": policy, "loss/kl": kl, "loss/entropy": bonus,
            "ratio/mean": ratio / kept, "ratio/max": ratio_max,
            "clip/high": high / kept, "clip/low": low / kept, "clip/dual": dual / kept,
            "rejected/frac": 1 - float(plan.keep.double().mean()), "entropy": float(ent.mean()),
            "logprob/mean": float(lp.mean()),
        }  # fmt: skip
        for sign, name in ((plan.adv > 0, "positive"), (plan.adv < 0, "negative")):
            if bool(sign.any()):
                out[f"logprob/{name}"] = float(lp[sign].mean())
        if plan.old is not None:
            out["kl/old"] = float((plan.old - lp).nan_to_num(0.0).mean())
        if plan.ref is not None:
            out["kl/reference"] = float(aggregate.kl(lp, plan.ref, "k3").nan_to_num(0.0).mean())
        return out

    def _check_definition(self, b: Batch, rows: list[Row], behavior: Tensor) -> None:
        """Once per life, on the first batch sampled at a temperature other than 1."""
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

    def _adapt(self, report: dict[str, Any], sequences: int) -> None:
        """Moves the adaptive coefficients for the next step."""
        c, m = self.config, self.memory
        if c.kl.adaptive_target and "kl/reward" in report:
            error = min(max(report["kl/reward"] / c.kl.adaptive_target - 1, -0.2), 0.2)
            m.kl_reward = report["kl/reward_coefficient"] * (1 + error * sequences / c.kl.adaptive_horizon)
        if c.entropy.adaptive:
            now = c.entropy.coefficient if m.entropy is None else m.entropy
            m.entropy_seen = report["entropy"]
            change = c.entropy.step if m.entropy_seen <= c.entropy.target else -c.entropy.step
            m.entropy = min(max(now + change, c.entropy.low), c.entropy.high)


def _bounds(o: objective.ObjectiveOptions) -> tuple[float | None, float | None]:
    """Between which ratios trainer / sampler no importance weight is clipped."""
    return o.importance_low, o.importance_high


def _weights(o: objective.ObjectiveOptions, plan: objective.Plan, lp: Tensor) -> dict[str, float]:
    """The importance weights that the step used."""
    if o.importance == "none" or not len(lp):
        return {}
    weight = plan.weight
    if weight is None:
        weight = objective.weights(o, lp, plan.behavior, plan.seq, plan.n)
    return {"importance/mean": float(weight.mean()), "importance/max": float(weight.max())}
