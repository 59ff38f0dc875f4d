"""The configuration file: the whole of it, its contradictions, and what may change while the worker runs."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

from recipe_sdk import settings
from recipe_sdk.fields import option, section
from recipe_sdk.settings import RunSettings

from . import advantage, aggregate, loss, rules, userfile
from .registry import Alias, EstimatorSpec, LossSpec
from .settings import Advantages, Correction, Data, Entropy, Kl, Lora, Loss, Model, Optimizer, Reference


@dataclass(frozen=True)
class Config(RunSettings):
    """The whole configuration file."""

    rollout_parts = True

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
    return out + rules.broken(c, facts(c))


def check_imports(c: Config) -> list[str]:
    """References to a user's functions that cannot be read."""
    out = []
    for path, reference in (("loss.imported", c.loss.imported), ("advantages.imported", c.advantages.imported)):
        try:
            if reference is not None:
                userfile.split(reference)
        except ValueError as e:
            out.append(f"{path}: {e}")
    return out


def facts(c: Config) -> dict[str, Any]:
    """What the rules may ask of the loss and the estimator that were chosen."""
    chosen, estimator = loss_spec(c), estimator_spec(c)
    return {
        **{f"loss:{n}": getattr(chosen, n) for n in ("ratio", "against", "needs", "weight", "aggregations")},
        "loss:aggregation": resolved(c)[2],
        **{f"estimator:{n}": getattr(estimator, n) for n in ("grouped", "least", "needs")},
    }


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
    if c.reference.inference:
        return "served"
    wanted = c.kl.coefficient or c.kl.reward_coefficient or "reference" in loss_spec(c).needs
    if not wanted:
        return "none"
    return "lora_off" if c.lora.rank and not c.reference.path else "copy"
