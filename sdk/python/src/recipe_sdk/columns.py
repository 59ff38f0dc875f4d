"""Batches as Arrow streams: the server's own trainer reads them several times faster than JSON. pyarrow is optional:
without it the worker asks for JSON, whose numbers are lists where a stream's are arrays."""

from __future__ import annotations

import json
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

try:
    import pyarrow as pa
except ImportError:  # an installation without it
    pa = None

CONTENT_TYPE = "application/vnd.apache.arrow.stream"


def accept() -> str:
    """What to ask for: JSON is always understood, and the only form in which run-api answers."""
    return f"{CONTENT_TYPE}, application/json" if pa else "application/json"


def _integer(digits: str) -> float:
    """An integer, or infinity where Python refuses to read one of thousands of digits: its group is rejected then."""
    return int(digits) if len(digits) < 1000 else float("inf")


def read_json(text: bytes | str) -> Any:
    """json.loads that no integer makes fail: one group with such a number would else cost its batch, each time."""
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        raise
    except ValueError:
        return json.loads(text, parse_int=_integer)


@dataclass(frozen=True)
class Encoded:
    """A /batch answer as it came: form is json or arrow."""

    form: str
    raw: bytes

    def decode(self) -> Any:
        """What it says."""
        return decode(self.raw) if self.form == "arrow" else read_json(self.raw)


def _values(array: Any) -> Any:
    """The elements of a list array, None where it has null; numbers as arrays that share the memory of the stream."""
    if not pa.types.is_list(array.type):
        return array.to_numpy(zero_copy_only=False)
    ends = array.offsets.to_numpy().tolist()
    first = ends[0] if ends else 0
    inner = _values(array.values.slice(first, ends[-1] - first) if ends else array.values)
    lists: list[Any] = [inner[a - first : b - first] for a, b in pairwise(ends)]
    if array.null_count:
        lists = [None if null else values for null, values in zip(array.is_null().to_pylist(), lists, strict=True)]
    return lists


def _field(table: memoryview, at: int, number: int) -> int:
    """Where a field of a FlatBuffers table lies; 0: it is not there."""
    vtable = at - int.from_bytes(table[at : at + 4], "little", signed=True)
    entry = vtable + 4 + 2 * number
    size = int.from_bytes(table[vtable : vtable + 2], "little")
    offset = int.from_bytes(table[entry : entry + 2], "little") if entry < vtable + size else 0
    return at + offset if offset else 0


def _compressed(metadata: memoryview) -> bool:
    """Whether the buffers of a message are compressed: field 3 of the record batch, which is field 2 of the message
    (Message.fbs of Arrow)."""
    message = int.from_bytes(metadata[:4], "little")
    header = _field(metadata, message, 2)
    if not header:
        return False
    batch = header + int.from_bytes(metadata[header : header + 4], "little")
    return _field(metadata, batch, 3) != 0


def _check(raw: bytes) -> None:
    """Refuse compressed buffers, which no trajectory API sends: a few kilobytes of them may inflate to gigabytes."""
    for message in pa.ipc.MessageReader.open_stream(raw):
        if message.type == "record batch" and _compressed(memoryview(message.metadata)):
            raise ValueError("expected record batches without compression")
        if message.type not in ("schema", "record batch"):
            raise ValueError(f"expected a schema and record batches, got a {message.type}")


def decode(raw: bytes) -> dict[str, Any]:
    """A /batch answer as its JSON form would be read, {"batch": [...], "id": ..., "lease_seconds": ...}, but for
    numbers of tokens, which are read-only arrays."""
    _check(raw)
    with pa.ipc.open_stream(raw) as stream:
        about = {k.decode(): v.decode() for k, v in (stream.schema.metadata or {}).items()}
        groups = []
        for rows in stream:
            rows.validate()  # offsets that lead out of a column would read other memory
            rows.column("rest").validate(full=True)
            columns = {name: _values(rows.column(name)) for name in rows.schema.names if name != "rest"}
            columns["scores"] = [None if scores is None else scores.tolist() for scores in columns["scores"]]
            for i, rest in enumerate(rows.column("rest").to_pylist()):
                other = read_json(rest)
                if columns["tokens"][i] is None:  # a group that does not fit into columns is all in rest
                    groups.append(other)
                else:
                    groups.append({name: values[i] for name, values in columns.items()} | other)
    answer: dict[str, Any] = {"batch": groups}
    if "id" in about:
        answer |= {"id": about["id"], "lease_seconds": float(about["lease_seconds"])}
    return answer
