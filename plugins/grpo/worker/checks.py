"""Is the sampler the policy that it should be, and does the policy learn? Asked with every step, because nothing else
notices when it is not so."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from recipe_sdk.errors import DivergedError, MismatchError

from .config import Config
from .correction import Mismatch

#: Batches in a row that may come to no optimizer step at all.
MOST_LEFT_OUT = 10


def absurd(c: Config, m: Mismatch) -> bool:
    """True when the batch must not train (mismatch_action = skip); MismatchError when the run must stop."""
    k = c.correction
    if k.mismatch_limit is None or m.tokens == 0 or m.mean_abs <= k.mismatch_limit or k.mismatch_action == "warn":
        return False
    if k.mismatch_action == "skip":
        return True
    rounded = ["The trainer's forward pass is calculated in float8: set model.float8 = backward."]
    raise MismatchError(
        f"the sampler's log-probabilities differ from the trainer's by {m.mean_abs:.3g} on average "
        f"(limit {k.mismatch_limit:g}; largest {m.max_abs:.3g}, effective sample size {m.ess:.2f})",
        [*(rounded if c.model.float8 == "all" else []),
         "Does inference serve this run's weights? Restarted by an old command line it serves the base model.",
         "Do temperature and top_p reach the log-probabilities alike on both sides (correction.logprobs_mode, "
         "vLLM's --logprobs-mode)?",
         "Are inference_logprobs aligned with tokens: entry t belongs to token t, 1.0 on the prompt?",
         "Is the data far too old? Lower data.max_staleness, or set correction.mismatch_action = skip."],
    )  # fmt: skip


#: Mean |log-probability difference| of samples of the current weights above which the sampler is another policy. In
#: bfloat16 some 0.02 are seen (docs/gsm8k.md), of a small model in float8 0.3, with which it learned nothing.
APART = 0.1


def another_policy(report: Mapping[str, Any]) -> list[str]:
    """A warning when what serves the current weights is not the policy that is trained, by the metrics of a step."""
    if report.get("mismatch/fresh_mean_abs", 0) <= APART:
        return []
    return [
        f"samples of the current weights have other log-probabilities here than at the server, by more than {APART} on "
        "average (metric mismatch/fresh_mean_abs): the sampler is another policy, which slows learning down or spoils "
        "it. Serve with more bits (dtype, quantization of the inference block), or see what else differs: "
        "temperature, top_p, correction.logprobs_mode, the weights themselves"
    ]


def definition(c: Config, configured: Mismatch, other: Mismatch, temperature: float) -> None:
    """Raises when log-probabilities sampled at `temperature` fit the other definition (with or without the division by
    the temperature) clearly better than the configured one."""
    if configured.tokens == 0 or configured.mean_abs < 0.02 or other.mean_abs > configured.mean_abs / 4:
        return
    mode = c.correction.logprobs_mode
    right = "raw" if mode == "processed" else "processed"
    remedy = "start vLLM with --logprobs-mode processed_logprobs" if mode == "processed" else "drop that vLLM flag"
    raise MismatchError(
        f"the server's log-probabilities at temperature {temperature:g} are {right} ones, "
        f"this run is set up for {mode}: they differ by {configured.mean_abs:.3g} on average, "
        f"by {other.mean_abs:.3g} under the other definition",
        [f"Set correction.logprobs_mode = {right}, or {remedy}.",
         "Both sides must mean the same: logits divided by the temperature before the softmax, or not."],
        "mismatch",
    )  # fmt: skip


def left_out(report: Mapping[str, Any], before: int) -> int:
    """How many batches in a row have now come to no optimizer step, since no gradient of theirs was finite. Raises
    DivergedError when these are so many that nothing will be learned any more."""
    if report["optimizer_steps"] or not report["optimizer_skipped"]:
        return 0
    if before + 1 < MOST_LEFT_OUT:
        return before + 1
    raise DivergedError(
        f"nothing has been learned from the last {MOST_LEFT_OUT} batches: no gradient of theirs was finite, so that no "
        "optimizer step was made",
        ["Are advantages, scores and log-probabilities of sane size (metrics adv/*, reward/*, mismatch/*)?",
         "With model.dtype = float16 numbers overflow early: use bfloat16 or float32.",
         "Lower optimizer.learning_rate, and continue a checkpoint from before grad_norm grew (recipe fork)."],
    )  # fmt: skip
