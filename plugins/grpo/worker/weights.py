"""The policy's weights by name, and as folders that transformers, peft and vLLM load."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from recipe_sdk import causal
from torch import Tensor

from .model import Policy


def merged(policy: Policy) -> Iterator[tuple[str, Tensor]]:
    """(name, value) of every weight of the plain model, adapters merged in, on the training device; tied weights once.

    Under sharding every rank must run through it in step."""
    return causal.named(policy.model)


def adapter(policy: Policy) -> Iterator[tuple[str, Tensor]]:
    """(name, value) of the adapter's weights under peft's file names."""
    return causal.adapter(policy.model)


def tied(policy: Policy) -> dict[str, str]:
    """Under which name the output head of a tied model would be written out, and which weight it is."""
    return causal.tied(policy.model)


def write_config(policy: Policy, out: Path) -> None:
    """config.json beside the policy's weights."""
    causal.write_config(policy.model, out)


def write_adapter_config(policy: Policy, out: Path) -> None:
    """adapter_config.json beside the adapter's weights."""
    causal.write_adapter_config(policy.model, out)


def end_tokens(policy: Policy) -> frozenset[int]:
    """Token ids that end a completion, from the model's configuration."""
    return causal.end_tokens(policy.model)
