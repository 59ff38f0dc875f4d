"""What a rule about settings says. The rules: rules.py, bounds.py and idle.py."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

Condition = tuple[str, str, Any]


@dataclass(frozen=True)
class Rule:
    """All conditions hold: the setting `at` is wrong. A condition is (left, comparison, right). Left is a setting, an
    entry of a list (advantages.clip.0) or a fact of the loss or estimator that was chosen (loss:needs); so is right
    behind an @. A comparison with null, other than == and !=, does not hold; nor does one with a fact that is not
    known, such as those of a user's own loss in a plan. {setting} in the texts stands for its value.

    warning: nothing is wrong, but the setting has no effect, or not the one that it seems to have: a plan warns.
    each: a list of objects whose entries are looked at one by one; "each.name" is a setting of the entry, `at` too."""

    at: str
    when: tuple[Condition, ...]
    text: str
    remedy: str
    warning: bool = False
    each: str = ""
