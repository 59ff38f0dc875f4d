"""The configuration file: the whole of it, its contradictions, and what may change while the worker runs."""

from __future__ import annotations

from dataclasses import dataclass

from recipe_sdk import settings
from recipe_sdk.fields import option, section
from recipe_sdk.settings import RunSettings

from . import advantage, aggregate, loss
from .settings import Advantages, Correction, Data, Entropy, Kl, Lora, Loss, Model, Optimizer, Reference


@dataclass(frozen=True)
class Config(RunSettings):
    """The whole configuration file."""

    model: Model = section(Model, Model.__doc__)
    data: Data = section(Data, Data.__doc__)
    lora: Lora = section(Lora, Lora.__doc__)
    reference: Reference = section(Reference, Reference.__doc__)
    optimizer: Optimizer = section(Optimizer, Optimizer.__doc__)
    loss: Loss = section(Loss, Loss.__doc__)
    kl: Kl = section(Kl, Kl.__doc__)
    entropy: Entropy = section(Entropy, Entropy.__doc__)
    advantages: Advantages = section(Advantages, Advantages.__doc__)
    correction: Correction = section(Correction, Correction.__doc__)
    save_merged: bool = option(True, "With adapters: write the merged model beside the adapter.")
    peak_tflops: float | None = option(None, "Device's peak for MFU; null = known devices only.")


def check(c: Config) -> list[str]:
    """Settings that contradict each other, one line each, with what to do."""
    out = settings.check(c)
    if c.advantages.clip is not None and not c.advantages.clip[0] <= 0 <= c.advantages.clip[1]:
        out.append(f"advantages.clip: expected low <= 0 <= high, got {list(c.advantages.clip)}")
    out += check_correction(c) + check_aggregation(c) + check_single(c)
    if c.loss.dual_clip is not None and c.loss.dual_clip <= 1:
        out.append(f"loss.dual_clip: expected more than 1, got {c.loss.dual_clip}")
    if not 0 < c.loss.top_entropy <= 1:
        out.append(f"loss.top_entropy: expected a share in (0, 1], got {c.loss.top_entropy}")
    if c.reference.source == "lora_off" and c.lora.rank == 0:
        out.append("reference.source: lora_off needs lora.rank > 0; use copy")
    if c.reference.source == "none" and (c.kl.coefficient or c.kl.reward_coefficient):
        out.append("reference.source: none, but a KL coefficient is set; set kl.coefficient = 0 or a reference")
    if c.loss.name in ("distill", "ref_kl") and c.reference.source in ("none", "lora_off"):
        out.append("reference.source: distillation needs a teacher: copy with reference.path, or data")
    if c.advantages.estimator in ("gdpo", "normalize_then_sum"):
        if not c.advantages.objective_weights:
            out.append("advantages.objective_weights: gdpo needs one weight per objective")
        if c.advantages.length_penalty:
            out.append("advantages.length_penalty: gdpo looks at objectives, not at scores; make length one of them")
    if c.kl.adaptive_target is not None and not (c.kl.adaptive_target > 0 and c.kl.reward_coefficient > 0):
        out.append("kl.adaptive_target: it scales kl.reward_coefficient; both must be more than 0")
    if "float16" in (c.model.dtype, c.model.compute_dtype):
        out.append("model.dtype, model.compute_dtype: gradients are too small for float16; use bfloat16")
    if c.data.mini_batch_size > c.data.batch_size:
        out.append(f"data.mini_batch_size: {c.data.mini_batch_size} is more than batch_size {c.data.batch_size}")
    return out


def check_correction(c: Config) -> list[str]:
    """An importance weight where the ratio holds it already, or no weight where the loss is nothing without it."""
    name, k, out = resolved(c)[0], c.correction, []
    explicit = k.importance not in ("auto", "none")
    if name in loss.BEHAVIOR_LOSSES and explicit:
        out.append(f"correction.importance: the ratio of {name} is against the sampler, so the weight would count "
                   "twice; leave it out")  # fmt: skip
    elif name == "decoupled_ppo":
        if k.importance == "none":
            out.append("correction.importance: decoupled_ppo is that weight; leave it out, set importance_high = null "
                       "for an unbounded one, or use loss.name = ppo")  # fmt: skip
        if k.old_policy == "rollout":
            out.append("correction.old_policy: decoupled_ppo needs the trainer's own policy beside the sampler's; "
                       "leave it out, or use loss.name = ppo")  # fmt: skip
    elif k.old_policy == "rollout" and explicit and name not in UNCLIPPED:
        out.append("correction.importance: with old_policy = rollout the ratio already holds the weight; "
                   "leave it out, or use loss.name = reinforce")  # fmt: skip
    return out


def check_aggregation(c: Config) -> list[str]:
    """An aggregation that the loss's own formula contradicts."""
    name, _, mode = resolved(c)
    fixed = loss.FIXED_AGGREGATION.get(name)
    if fixed is None or mode in fixed:
        return []
    return [f"loss.aggregation: {c.loss.name} fixes how its tokens are averaged, {' or '.join(fixed)}; "
            f"got {c.loss.aggregation}. Leave it out, or use loss.name = ppo (with loss.ratio_level)"]  # fmt: skip


def check_single(c: Config) -> list[str]:
    """advantages.single where a group of one is nothing special, or cannot be judged at all."""
    name = advantage.ESTIMATOR_ALIASES.get(c.advantages.estimator, c.advantages.estimator)
    if c.advantages.single is not None and name in advantage.UNGROUPED:
        return [f"advantages.single: {c.advantages.estimator} does not compare within groups; leave it out"]
    if c.advantages.single == "score" and name == "grpo_passk":
        return ["advantages.single: grpo_passk compares the best two of a group; a group of one has none. Leave it out"]
    return []


# Losses without a ratio: in bypass mode nothing but a weight corrects them.
UNCLIPPED = ("gpg", "reinforce", *loss.SUPERVISED_LOSSES)


def importance_of(c: Config) -> tuple[str, bool]:
    """correction.importance with "auto" decided, and whether a token without the sampler's log-probability may train
    (with weight 1). Truncated importance sampling is the default, as in TRL (vllm_importance_sampling_correction) and
    prime-rl (every ratio is against the sampler): samples are older than the weights that train on them."""
    name, k = resolved(c)[0], c.correction
    if k.importance != "auto":
        return k.importance, False
    if name == "decoupled_ppo":
        return "token", False
    bypassed = k.old_policy == "rollout" and name not in UNCLIPPED
    if name in (*loss.SUPERVISED_LOSSES, *loss.BEHAVIOR_LOSSES) or bypassed:
        return "none", False
    return "token", True


def length_norm(c: Config) -> float:
    """The constant of the -norm aggregations: the longest response that the configuration allows. Never the longest of
    a batch, which would weigh a batch by an accident (Liu et al. 2025, "Understanding R1-Zero-Like Training")."""
    d = c.data
    if c.loss.length_norm:
        return c.loss.length_norm
    return float(d.max_response_length or max(d.max_length - d.max_prompt_length, 1))


def resolved(c: Config) -> tuple[str, str, str]:
    """(loss, ratio level, aggregation) with aliases and presets taken apart."""
    presets = {
        "dapo": ("token", "token-mean"), "bnpo": ("token", "token-mean"), "dr_grpo": ("token", "batch-sum-norm"),
        "luspo": ("sequence", "batch-mean-token-sum"), "gspo": ("sequence_token", "seq-mean-token-mean"),
    }  # fmt: skip
    name = loss.LOSS_ALIASES.get(c.loss.name, c.loss.name)
    own = loss.FIXED_AGGREGATION.get(name, ("token-mean",))[0]
    level, mode = presets.get(c.loss.name, ("token", own))
    mode = c.loss.aggregation or mode
    return name, c.loss.ratio_level or level, aggregate.AGGREGATION_ALIASES.get(mode, mode)


def from_dict(given: dict) -> Config:
    """A checked configuration, or ConfigError with every mistake."""
    return settings.from_dict(given, Config, check)


def load(path: str) -> Config:
    """The configuration in a file."""
    return from_dict(settings.load(path))


def update(c: Config, change: dict) -> Config:
    """c with live settings changed; ConfigError when a setting is unknown, wrong or needs a restart."""
    return settings.update(c, change, check)


def source_of(c: Config) -> str:
    """reference.source with "auto" decided."""
    if c.reference.source != "auto":
        return c.reference.source
    wanted = c.kl.coefficient or c.kl.reward_coefficient or c.loss.name in ("distill", "ref_kl")
    if not wanted:
        return "none"
    return "lora_off" if c.lora.rank and not c.reference.path else "copy"
