"""What recipe_serve adds to the arguments of `vllm serve`."""

from __future__ import annotations

import importlib.util
from types import SimpleNamespace

import pytest

import recipe_serve


@pytest.mark.parametrize(("source", "expected"), [
    ("enabled = getattr(args, 'enable_scale_out', False)", True),
    ("app.include_router(derender)", False),  # the routes need no flag there
    (None, False),
])  # fmt: skip
def test_the_flag_for_reading_answers(tmp_path, monkeypatch, source, expected):
    if source is not None:
        folder = tmp_path / "entrypoints" / "scale_out"
        folder.mkdir(parents=True)
        (folder / "factories.py").write_text(source)
    spec = SimpleNamespace(origin=str(tmp_path / "__init__.py"))
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: spec if name == "vllm" else None)
    assert recipe_serve.reads_answers() is expected


def test_without_vllm(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert recipe_serve.reads_answers() is False
