"""The Python side of recipe: a trainer takes batches from the trajectory API, trains, and offers its weights.

`Bridge` is all that a trainer needs; see docs/writing-trainers.md. Importing this package loads
neither torch nor numpy.
"""

from __future__ import annotations

__version__ = "0.1.0"

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .batch import Batch, GroupBatch, Row
    from .bridge import Bridge, leave
    from .checkpoint import Checkpoint
    from .groups import ReadOptions
    from .settings import RunSettings, Settings

_HOME = {
    "Batch": "batch", "GroupBatch": "batch", "Row": "batch", "Bridge": "bridge", "leave": "bridge",
    "Checkpoint": "checkpoint", "ReadOptions": "groups", "RunSettings": "settings", "Settings": "settings",
}  # fmt: skip

__all__ = ["Batch", "Bridge", "Checkpoint", "GroupBatch", "ReadOptions", "Row", "RunSettings", "Settings", "leave"]


def __getattr__(name: str) -> Any:
    """Loads what is asked for: an environment's author may not have torch."""
    if name not in _HOME:
        raise AttributeError(f"recipe_sdk has no {name}; it has {', '.join(__all__)}")
    import importlib

    return getattr(importlib.import_module(f".{_HOME[name]}", __name__), name)
