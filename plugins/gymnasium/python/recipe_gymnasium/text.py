"""Spaces of Gymnasium as text."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

ACTIONS: Mapping[str, Sequence[str]] = {
    "Blackjack": ("stick", "hit"),
    "CliffWalking": ("up", "right", "down", "left"),
    "FrozenLake": ("left", "down", "right", "up"),
    "Taxi": ("south", "north", "east", "west", "pickup", "dropoff"),
}
"""Names of the numbered actions, from Gymnasium's documentation: the package holds none."""

PARTS: Mapping[str, Sequence[str]] = {"Blackjack": ("your sum", "the dealer's card", "a usable ace")}
"""Names of the parts of observations that have several."""

_COLORS = ("black", "red", "green", "yellow", "blue", "magenta", "cyan", "white")
_COLORED = re.compile(r"\x1b\[([34])([0-7])(?:;\d+)*m(.*?)\x1b\[0m", re.DOTALL)


def plain(picture: str) -> str:
    """A picture in text without terminal colors, which in some alone say where the player is: highlighted text stands
    in brackets, and where there are several colors they are listed."""
    marks = []

    def mark(found: re.Match[str]) -> str:
        ground, color, content = found.groups()
        shown = f"[{content}]" if ground == "4" else content
        marks.append(f"{shown} {_COLORS[int(color)]}")
        return shown

    shown = _COLORED.sub(mark, picture).strip("\n")
    return f"{shown}\n({', '.join(marks)})" if len(marks) > 1 else shown


def observation(value: Any, names: Sequence[str]) -> str:
    """An observation without a picture."""
    if isinstance(value, Mapping):
        return "\n".join(f"{name}: {observation(part, ())}" for name, part in value.items())
    if isinstance(value, tuple):
        if len(names) == len(value):
            return observation(dict(zip(names, value, strict=True)), ())
        return ", ".join(observation(part, ()) for part in value)
    return str(value)


def named_by(match: re.Match[str]) -> str:
    """What a match names: its first group that took part in it, of an alternation the one that was found; else all."""
    return next((group for group in match.groups() if group is not None), match[0])


def chosen(text: str, pattern: re.Pattern[str] | None, names: Sequence[str]) -> int | None:
    """Which action an answer names: the last one in it, or the one in the last match of the pattern. None: none."""
    if pattern is not None:
        found = list(pattern.finditer(text))
        text = named_by(found[-1]).strip() if found else ""
    words = "|".join(re.escape(n) for n in sorted(names, key=len, reverse=True))
    named = re.findall(rf"(?<!\w)(?:{words})(?!\w)", text, re.IGNORECASE)
    return [n.lower() for n in names].index(named[-1].lower()) if named else None
