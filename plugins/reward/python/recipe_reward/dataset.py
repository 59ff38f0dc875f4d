"""Rows of a dataset: a JSON lines, JSON, CSV or Parquet file, a folder, or a name of the Hugging Face hub."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

Row = dict[str, Any]


def read(name: str, folder: Path, *, split: str, config: str) -> list[Row]:
    """The rows of a file, if name ends as one does, or of a directory, both below folder; else of the hub."""
    ending, path = Path(name).suffix, folder / name
    if ending not in (".jsonl", ".json", ".csv", ".parquet"):
        return _hub(str(path) if path.is_dir() else name, split, config)
    if ending == ".jsonl":
        lines = _text(path).split("\n")  # not splitlines, which ends a line at characters that JSON strings may hold
        return [_object(line, f"{path}:{n}") for n, line in enumerate(lines, 1) if line.strip()]
    if ending == ".json":
        rows = json.loads(_text(path))
        if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
            raise ValueError(f"{path}: want a list of objects")
        return rows
    if ending == ".csv":
        with path.open(newline="", encoding="utf-8-sig") as file:
            reader = csv.DictReader(file)
            return [_line(row, f"{path}:{reader.line_num}") for row in reader]
    import pyarrow.parquet

    found: list[Row] = pyarrow.parquet.read_table(path).to_pylist()
    return found


def _text(path: Path) -> str:
    """A file's text, with or without a byte order mark."""
    try:
        return path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as e:
        raise ValueError(f"{path}: want text in UTF-8: {e}") from e


def _line(row: dict[Any, Any], place: str) -> Row:
    """A line of a CSV file, which must have as many fields as the first."""
    if None in row or None in row.values():
        raise ValueError(f"{place}: it has another number of fields than the first line; quote fields with commas")
    return dict(row)


def _object(line: str, place: str) -> Row:
    try:
        row = json.loads(line)
    except ValueError as e:
        raise ValueError(f"{place}: want a JSON object, got {line[:80]!r}") from e
    if not isinstance(row, dict):
        raise ValueError(f"{place}: want a JSON object, got {line[:80]!r}")
    return row


def _hub(name: str, split: str, config: str) -> list[Row]:
    import datasets

    return [dict(row) for row in datasets.load_dataset(name, config or None, split=split)]
