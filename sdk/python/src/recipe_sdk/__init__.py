"""The Python side of recipe: environments give tasks and score answers; trainers take batches from the trajectory API,
train, and offer their weights.

`Environment` and `Task` make an environment (docs/authors), `Bridge` makes a trainer (docs/writing-trainers.md).
Importing this package loads neither torch nor numpy.
"""

from __future__ import annotations

__version__ = "0.1.0"

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .batch import Batch, GroupBatch, Row
    from .bridge import Bridge, leave, work
    from .checkpoint import Checkpoint
    from .environment import (
        Chat,
        Code,
        Columns,
        Completion,
        Environment,
        InfraFailure,
        Message,
        Policy,
        PolicyError,
        Reference,
        Score,
        Task,
        setting,
        tool,
    )
    from .groups import ReadOptions
    from .settings import RunSettings, Settings

_HOME = {
    "Batch": "batch", "GroupBatch": "batch", "Row": "batch", "Bridge": "bridge", "leave": "bridge", "work": "bridge",
    "Checkpoint": "checkpoint", "ReadOptions": "groups", "RunSettings": "settings", "Settings": "settings",
    "Code": "environment", "Completion": "environment", "Environment": "environment", "InfraFailure": "environment",
    "Message": "environment", "Reference": "environment", "Task": "environment", "setting": "environment",
    "Chat": "environment", "Policy": "environment", "PolicyError": "environment", "tool": "environment",
    "Score": "environment", "Columns": "environment",
}  # fmt: skip

__all__ = [
    "Batch", "Bridge", "Chat", "Checkpoint", "Code", "Columns", "Completion", "Environment", "GroupBatch",
    "InfraFailure", "Message", "Policy", "PolicyError", "ReadOptions", "Reference", "Row", "RunSettings", "Score",
    "Settings", "Task", "leave", "setting", "tool", "work",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    """Loads what is asked for: an environment's author may not have torch."""
    if name not in _HOME:
        raise AttributeError(f"recipe_sdk has no {name}; it has {', '.join(__all__)}")
    import importlib

    return getattr(importlib.import_module(f".{_HOME[name]}", __name__), name)
