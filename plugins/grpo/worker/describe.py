"""What `python -m worker --schema` prints: every setting, which of them contradict each other, and what
losses and estimators say of themselves.

It is checked in as plugins/grpo/schema.json (make generate), from which the plugin makes the block's schema and a plan
takes what it says of losses; a test compares the two."""

from __future__ import annotations

from typing import Any

from recipe_sdk import fields

from . import advantage, aggregate, config, loss, rules
from .registry import Alias, EstimatorSpec, LossSpec


def schema() -> dict[str, Any]:
    """Everything."""
    return {
        "sections": fields.sections(config.Config),
        "settings": fields.describe(config.Config),
        "rules": rules.describe(),
        **learning(),
    }


def learning() -> dict[str, Any]:
    """Losses, estimators and aggregations, each with its own name first."""
    return {
        "losses": [_loss(s) for s in loss.LOSSES.specs.values()],
        "estimators": [_estimator(s) for s in advantage.ESTIMATORS.specs.values()],
        "aggregations": [
            {"name": name, "aliases": [a for a, of in aggregate.AGGREGATION_ALIASES.items() if of == name]}
            for name in aggregate.AGGREGATIONS
        ],
    }


def _loss(s: LossSpec) -> dict[str, Any]:
    return {"name": s.name, "ratio": s.ratio, "against": s.against, "aggregation": s.aggregation,
            "aggregations": s.aggregations, "needs": s.needs, "weight": s.weight, "uses": s.uses,
            "aliases": [_alias(a) for a in s.aliases]}  # fmt: skip


def _estimator(s: EstimatorSpec) -> dict[str, Any]:
    return {"name": s.name, "grouped": s.grouped, "least": s.least, "needs": s.needs,
            "uses": s.uses, "aliases": [_alias(a) for a in s.aliases]}  # fmt: skip


def _alias(a: Alias) -> dict[str, Any]:
    return {"name": a.name, "ratio": a.ratio, "aggregation": a.aggregation}


def chosen(c: config.Config) -> dict[str, Any]:
    """What the worker decides on this machine where a setting is "auto" or unset, by setting. The sizes of a step
    (row_tokens, head_chunk, gradient_checkpointing) and the attention kernel depend on the model, and on the memory
    that is free beside it: they are in the event `model` of a run."""
    from .model import decided, device_of

    device = device_of(c)
    name, level, aggregation = config.resolved(c)
    out = {
        "model.device": str(device), "model.dtype": decided(c, device).model.dtype,
        "model.compute_dtype": decided(c, device).model.compute_dtype,
        "loss.name": name, "loss.ratio_level": level, "loss.aggregation": aggregation,
        "correction.importance": config.importance_of(c)[0], "reference.source": config.source_of(c),
    }  # fmt: skip
    if aggregation.endswith("-norm"):
        out["loss.length_norm"] = config.length_norm(c)
    return out
