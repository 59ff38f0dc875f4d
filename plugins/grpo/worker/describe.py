"""What `python -m worker --schema` prints: every setting, and what losses and estimators say of themselves.

It is checked in as plugins/grpo/schema.json (make generate), from which the plugin makes the block's schema and a plan
takes what it says of losses; a test compares the two."""

from __future__ import annotations

from typing import Any

from recipe_sdk import fields

from . import advantage, aggregate, config, loss
from .registry import Alias, EstimatorSpec, LossSpec


def schema() -> dict[str, Any]:
    """Everything."""
    return {"settings": fields.describe(config.Config), **learning()}


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
            "aggregations": s.aggregations, "needs": s.needs, "weight": s.weight,
            "aliases": [_alias(a) for a in s.aliases]}  # fmt: skip


def _estimator(s: EstimatorSpec) -> dict[str, Any]:
    return {"name": s.name, "grouped": s.grouped, "least": s.least, "needs": s.needs,
            "aliases": [_alias(a) for a in s.aliases]}  # fmt: skip


def _alias(a: Alias) -> dict[str, Any]:
    return {"name": a.name, "aggregation": a.aggregation}
