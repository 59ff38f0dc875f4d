"""settings.json of a plugin: which settings of the project its block's `config` may hold. A plan reads it, too."""

from __future__ import annotations

import difflib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

KINDS = {bool: "bool", int: "whole number", float: "number", str: "string", list: "list", dict: "object",
         type(None): "null"}  # fmt: skip


@dataclass(frozen=True)
class Table:
    """managed: what recipe decides, with what to write instead. known: all others, with the kinds of value that each
    takes; empty: the project itself looks. choices and least: the values of some. What is in objects (a dot separates
    their names), open and pairs are for the plan."""

    managed: Mapping[str, str]
    known: Mapping[str, str] = field(default_factory=dict)
    choices: Mapping[str, list[str]] = field(default_factory=dict)
    least: Mapping[str, float] = field(default_factory=dict)
    idle: list[Any] = field(default_factory=list)
    open: list[str] = field(default_factory=list)
    pairs: list[str] = field(default_factory=list)

    @staticmethod
    def read(path: Path) -> Table:
        """The table of a file."""
        return Table(**json.loads(path.read_text(encoding="utf-8")))

    def mistakes(
        self, given: Mapping[str, Any], project: str, instead: Callable[[str], str | None] = lambda _: None
    ) -> list[str]:
        """One line for each setting that is refused. instead: what to write in place of a name that the table lacks."""
        found = {name: self._mistake(name, given[name], project, instead(name)) for name in sorted(given)}
        return [f"config.{name}: {text}" for name, text in found.items() if text]

    def _mistake(self, name: str, value: Any, project: str, instead: str | None) -> str | None:
        if (reason := self.managed.get(name) or instead) is not None:
            return reason
        if name not in self.known:
            near = difflib.get_close_matches(name, self.known, 1)
            return f"{project} has no such setting" + (f"; did you mean {near[0]}?" if near else "")
        kinds = self.known[name].split("|")
        if kinds != [""] and not {KINDS[type(value)], "number" if type(value) is int else ""} & set(kinds):
            return f"expected {' or '.join(kinds)}, got {value!r}"
        if isinstance(value, str) and value not in (choices := self.choices.get(name, [value])):
            return f"expected one of {', '.join(choices)}, got {value!r}"
        if isinstance(value, int | float) and value < self.least.get(name, value):
            return f"expected {self.least[name]} or more, got {value!r}"
        return None
