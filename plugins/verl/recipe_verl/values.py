"""What a setting of verl's may be. verl takes a word for a number, and any word for true, until it computes with it."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from typing import Any

LEAST = {
    "actor_rollout_ref.actor.ppo_mini_batch_size": 1, "actor_rollout_ref.actor.ppo_epochs": 1,
    "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu": 1, "actor_rollout_ref.actor.ppo_max_token_len_per_gpu": 1,
    "actor_rollout_ref.actor.optim.lr": 0, "actor_rollout_ref.model.lora_rank": 0,
}  # fmt: skip


def wrong(name: str, value: Any, own: Any, annotation: str) -> str:
    """Return an error message, or "" if the value is valid. own: verl's default; annotation: of its dataclass,
    "" where there is none."""
    if value == own or (isinstance(value, str) and "${" in value):
        return ""
    if isinstance(own, Mapping):
        return "" if isinstance(value, Mapping) else "an object"
    if value is None:  # which its code asks for here and there, whatever the type says
        return ""
    plain = bare(annotation)
    if (plain.endswith("Config") or plain.startswith("dict")) and not isinstance(value, Mapping):
        return "an object"
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if plain == "bool" or (not annotation and isinstance(own, bool)):
        return "" if isinstance(value, bool) else "true or false"
    if plain == "int" and not (number and float(value).is_integer()):
        return "a whole number"
    if plain == "float" and not number:
        return "a number"
    if not annotation and isinstance(own, int | float) and isinstance(value, bool | list | Mapping):
        return "a number"
    return f"{LEAST[name]} or more" if number and value < LEAST.get(name, value) else ""


def bare(annotation: str) -> str:
    """The type of a field that may be None."""
    return annotation.removeprefix("Optional[").removesuffix("]").removesuffix(" | None")


def alone(own: Any, annotation: str) -> str:
    """What a setting is that is one value, and so holds no settings; "" where verl may read some in it. Its code takes
    lists for what it calls a string, but never an object."""
    if isinstance(own, Mapping):
        return ""
    if not annotation:
        return "true or false" if isinstance(own, bool) else "a number" if isinstance(own, int | float) else ""
    words = {"bool": "true or false", "int": "a whole number", "float": "a number", "str": "a string"}
    return words.get(bare(annotation), "")


def annotations(node: ast.ClassDef) -> dict[str, str]:
    """The fields of a dataclass, with their types."""
    of = (n for n in node.body if isinstance(n, ast.AnnAssign) and isinstance(n.target, ast.Name))
    return {n.target.id: ast.unparse(n.annotation) for n in of}
