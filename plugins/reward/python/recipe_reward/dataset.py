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
        return [_object(line, f"{path}:{n}") for n, line in enumerate(path.read_text().splitlines(), 1) if line.strip()]
    if ending == ".json":
        rows = json.loads(path.read_text())
        if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
            raise ValueError(f"{path}: want a list of objects")
        return rows
    if ending == ".csv":
        with path.open(newline="") as file:
            return [dict(row) for row in csv.DictReader(file)]
    import pyarrow.parquet

    found: list[Row] = pyarrow.parquet.read_table(path).to_pylist()
    return found


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
