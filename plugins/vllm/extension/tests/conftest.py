"""What the tests of vLLM's plugins share."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Callable
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[1]


@pytest.fixture
def load_plugin() -> Callable[[str], None]:
    """Installs a module of the extension through its entry point, twice, as each of vLLM's processes loads it."""

    def load(module: str) -> None:
        found = [d for d in importlib.metadata.distributions(path=[str(FOLDER)]) if d.metadata["Name"] == "recipe-vllm"]
        points = [e for d in found for e in d.entry_points if e.group == "vllm.general_plugins"]
        (point,) = [e for e in points if e.module == module]
        for _ in range(2):
            point.load()()

    return load
