"""What the supervisor reads of events: event_types.json is written from its Go struct (TestTheWorkerIsToldWhatIsReadOfItsEvents)."""

import json
from pathlib import Path

TYPES = json.loads((Path(__file__).parent / "event_types.json").read_text())
SCALARS = {"string": str, "boolean": bool, "integer": int, "number": (int, float)}


def fits(value, kind: str) -> bool:
    """Whether Go's decoder takes the value for a field of this type; null leaves a field as it is."""
    if value is None or kind == "any":
        return True
    outer, _, inner = kind.partition(" of ")
    if outer == "object":
        return isinstance(value, dict) and all(fits(v, inner) for v in value.values())
    if outer == "array":
        return isinstance(value, list) and all(fits(v, inner) for v in value)
    if isinstance(value, bool) and kind != "boolean":
        return False
    return isinstance(value, SCALARS[kind])


def check(record: dict) -> None:
    """Raises if the type of one field would make the whole event unreadable."""
    wrong = {k: (v, TYPES[k]) for k, v in record.items() if k in TYPES and not fits(v, TYPES[k])}
    assert not wrong, f"event {record['type']}: the supervisor cannot read {wrong}"
