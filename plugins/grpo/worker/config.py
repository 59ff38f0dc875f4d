"""The configuration file: the whole of it, its contradictions, and what may change while the worker runs."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

from recipe_sdk import settings
from recipe_sdk.fields import option, section
from recipe_sdk.settings import RunSettings

from . import advantage, aggregate, loss, userfile
from .registry import Alias, EstimatorSpec, LossSpec
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
    peak_tflops: float | None = option(None, "Device's peak for MFU; unset: known devices only.")


def check(c: Config) -> list[str]:
    """Settings that contradict each other, one line each, with what to do."""
    unreadable = check_imports(c)
    out = settings.check(c) + unreadable
    if unreadable:
        return out  # what follows asks the functions what they need
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
    if "reference" in loss_spec(c).needs and c.reference.source in ("none", "lora_off"):
        out.append("reference.source: distillation needs a teacher: copy with reference.path, or data")
    if "objectives" in estimator_spec(c).needs:
        name = estimator_spec(c).name
        if not c.advantages.objective_weights:
            out.append(f"advantages.objective_weights: {name} needs one weight per objective")
        if c.advantages.length_penalty:
            out.append(f"advantages.length_penalty: {name} looks at objectives, not at scores; make length one of them")
    if c.kl.adaptive_target is not None and not (c.kl.adaptive_target > 0 and c.kl.reward_coefficient > 0):
        out.append("kl.adaptive_target: it scales kl.reward_coefficient; both must be more than 0")
    if "float16" in (c.model.dtype, c.model.compute_dtype):
        out.append("model.dtype, model.compute_dtype: gradients are too small for float16; use bfloat16")
    if c.data.mini_batch_size > c.data.batch_size:
        out.append(f"data.mini_batch_size: {c.data.mini_batch_size} is more than batch_size {c.data.batch_size}")
    return out


def check_imports(c: Config) -> list[str]:
    """References to a user's functions that cannot be read, or that stand beside a name."""
    out = []
    for path, reference, name, default in (
        ("loss.imported", c.loss.imported, c.loss.name, "ppo"),
        ("advantages.imported", c.advantages.imported, c.advantages.estimator, "grpo"),
    ):
        if reference is None:
            continue
        try:
            userfile.split(reference)
        except ValueError as e:
            out.append(f"{path}: {e}")
        if name != default:
            out.append(f"{path}: it stands in the place of {name}; leave one of them out")
    return out


def loss_spec(c: Config) -> LossSpec:
    """What the loss says of itself."""
    return _loss(c)[0]


def _loss(c: Config) -> tuple[LossSpec, Alias]:
    if c.loss.imported:
        return userfile.spec(c.loss.imported, "loss"), Alias("")
    return loss.LOSSES.find(c.loss.name)


def loss_defaults(c: Config) -> dict:
    """Constants that the loss, or the name by which it was asked for, sets apart from those of LossOptions."""
    spec, alias = _loss(c)
    return {**spec.defaults, **alias.defaults}


def estimator_spec(c: Config) -> EstimatorSpec:
    """What the estimator of advantages says of itself."""
    return _estimator(c)[0]


def _estimator(c: Config) -> tuple[EstimatorSpec, Alias]:
    if c.advantages.imported:
        return userfile.spec(c.advantages.imported, "estimator"), Alias("")
    return advantage.ESTIMATORS.find(c.advantages.estimator)


def estimator_options(c: Config) -> advantage.Options:
    """The constants of the estimator; what the name by which it was asked for fixes goes first."""
    a, alias = c.advantages, _estimator(c)[1]
    given = advantage.Options(a.std, a.epsilon, a.single or "zero", a.gamma, a.lam, a.zero_tail, a.length_penalty)
    return dataclasses.replace(given, **alias.defaults)


def check_correction(c: Config) -> list[str]:
    """An importance weight where the ratio holds it already, or no weight where the loss is nothing without it."""
    spec, k, out = loss_spec(c), c.correction, []
    explicit = k.importance not in ("auto", "none")
    if spec.against == "sampler" and explicit:
        out.append(f"correction.importance: the ratio of {spec.name} is against the sampler, so the weight would count "
                   "twice; leave it out")  # fmt: skip
    elif spec.weight == "required":
        if k.importance == "none":
            out.append(f"correction.importance: {spec.name} is that weight; leave it out, set importance_high = null "
                       "for an unbounded one, or use loss.name = ppo")  # fmt: skip
        if k.old_policy == "rollout":
            out.append(f"correction.old_policy: {spec.name} needs the trainer's own policy beside the sampler's; "
                       "leave it out, or use loss.name = ppo")  # fmt: skip
    elif k.old_policy == "rollout" and explicit and spec.ratio is not None:
        out.append("correction.importance: with old_policy = rollout the ratio already holds the weight; "
                   "leave it out, or use loss.name = reinforce")  # fmt: skip
    return out


def check_aggregation(c: Config) -> list[str]:
    """An aggregation that the loss's own formula contradicts."""
    allowed, mode = loss_spec(c).aggregations, resolved(c)[2]
    if allowed is None or mode in allowed:
        return []
    return [f"loss.aggregation: {c.loss.name} fixes how its tokens are averaged, {' or '.join(allowed)}; "
            f"got {c.loss.aggregation}. Leave it out, or use loss.name = ppo (with loss.ratio_level)"]  # fmt: skip


def check_single(c: Config) -> list[str]:
    """advantages.single where a group of one is nothing special, or cannot be judged at all."""
    spec = estimator_spec(c)
    if c.advantages.single is not None and not spec.grouped:
        return [f"advantages.single: {c.advantages.estimator} does not compare within groups; leave it out"]
    if c.advantages.single == "score" and spec.least > 1:
        return [f"advantages.single: {spec.name} compares the best {spec.least} of a group; a group of one has none. "
                "Leave it out"]  # fmt: skip
    return []


def importance_of(c: Config) -> tuple[str, bool]:
    """correction.importance with "auto" decided, and whether a token without the sampler's log-probability may train
    (with weight 1). Truncated importance sampling is the default, as in TRL (vllm_importance_sampling_correction) and
    prime-rl (every ratio is against the sampler): samples are older than the weights that train on them."""
    spec, k = loss_spec(c), c.correction
    if k.importance != "auto":
        return k.importance, False
    if spec.weight == "required":
        return "token", False
    bypassed = k.old_policy == "rollout" and spec.ratio is not None
    if spec.weight == "explicit" or spec.against == "sampler" or bypassed:
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
    """(loss, ratio level, aggregation) with aliases taken apart."""
    spec, alias = _loss(c)
    level = c.loss.ratio_level or alias.ratio or spec.ratio or "token"
    mode = c.loss.aggregation or alias.aggregation or spec.aggregation
    return spec.name, level, aggregate.AGGREGATION_ALIASES.get(mode, mode)


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
    wanted = c.kl.coefficient or c.kl.reward_coefficient or "reference" in loss_spec(c).needs
    if not wanted:
        return "none"
    return "lora_off" if c.lora.rank and not c.reference.path else "copy"
