"""Tools as text: the table of cases that the Go side (sdk/kit/toolcall) is held to as well."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from recipe_sdk.environment import tools

PATH = Path(__file__).resolve().parents[2] / "kit" / "toolcall" / "testdata" / "cases.json"
CASES = json.loads(PATH.read_text(encoding="utf-8"))


@pytest.mark.parametrize("case", CASES["answers"], ids=lambda case: case["name"])
def test_calls_are_read(case: dict[str, Any]) -> None:
    found = tools.calls(case["text"])
    assert len(found) == len(case["calls"])
    for text, want in zip(found, case["calls"], strict=True):
        if want is None:
            with pytest.raises(ValueError):
                tools.read(text)
        else:
            assert tools.read(text) == (want["name"], want["arguments"])


def test_the_prompt_holds_each_tool_on_a_line_of_json() -> None:
    want = CASES["prompt"]
    text = tools.prompt([tools.Tool(**t, function=print) for t in want["tools"]])
    assert text.startswith(want["before"]) and text.endswith(want["after"])
    lines = text[len(want["before"]) : -len(want["after"])].split("\n")
    assert [json.loads(line) for line in lines] == [{"type": "function", "function": t} for t in want["tools"]]
    assert all(part in line for part, line in zip(want["holds"], lines, strict=True))


def test_results_are_named() -> None:
    assert tools.response(CASES["response"]["results"]) == CASES["response"]["text"]
