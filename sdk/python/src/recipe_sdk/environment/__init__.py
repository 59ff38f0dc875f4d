"""Write an environment: a class with `next` and `score`, in one file that a recipe names (docs/authors).

This package needs nothing beyond Python itself. The plugin process, which is part of recipe, samples, builds the groups
and posts them; it calls the class in a worker process (`recipe_sdk.environment.serve`).
"""

from .base import Completion, Environment, InfraFailure, Message, Score, Task
from .policy import Chat, Policy, PolicyError
from .settings import Code, Columns, Reference, setting
from .tools import tool

__all__ = [
    "Chat", "Code", "Columns", "Completion", "Environment", "InfraFailure", "Message", "Policy", "PolicyError",
    "Reference", "Score", "Task", "setting", "tool",
]  # fmt: skip
